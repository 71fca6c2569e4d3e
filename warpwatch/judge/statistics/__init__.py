"""Pure statistics: numbers in, numbers out; nothing here knows a commit or a file."""
