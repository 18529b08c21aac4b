"""Code-switching: lexicons from aligned catalogues, generated text, language tags and measures. No torch here."""
