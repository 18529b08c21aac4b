"""What all tests start from."""

import signal

# A shell starts what it puts in the background with Ctrl-C ignored, and children inherit that; tests that press
# Ctrl-C then test nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
