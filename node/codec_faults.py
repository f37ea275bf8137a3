"""What is wrong with an encoded value, in words that a remote peer can use."""

import sys


def codec_fault(error: Exception) -> str:
    """What is wrong, by the error of an encoder or decoder. Python's own texts on long integers,
    recursion and UTF-8 are about this interpreter, and are replaced."""
    text = str(error)
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "text that is not Unicode"
    if "set_int_max_str_digits" in text:
        return f"an integer has more than {sys.get_int_max_str_digits():,} digits"
    return text
