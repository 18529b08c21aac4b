"""Configuration: declared once, frozen, read from YAML plus repeatable ``--set a.b=c``. No torch here."""
