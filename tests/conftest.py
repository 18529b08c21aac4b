"""What all tests start from."""

import signal

from hypothesis import settings

# How long an example takes says more about what else the machine does.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell starts what it puts in the background with Ctrl-C ignored, and children inherit that; tests that press
# Ctrl-C then test nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
