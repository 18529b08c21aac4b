"""xlm: raw multilingual text in, a pretrained cross-lingual encoder with honest scores out."""

__version__ = "0.1.0"
