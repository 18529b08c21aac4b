"""One shared subword vocabulary: balanced text, SentencePiece training, the Vocabulary, its coverage. No torch here."""
