"""The public operations of attention: each checks its arguments and hands them on."""
