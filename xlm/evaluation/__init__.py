"""How well the encoder transfers: encoding, probe, fine-tuning, floors, code-switching, statistics.

Every choice is made on English dev data only, and every score stands beside floors that saw the same
English sentences, so that a number says what pretraining gave and not what the task gives away.
"""
