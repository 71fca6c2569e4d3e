"""The public operations of matmul: each checks its arguments and hands them on."""
