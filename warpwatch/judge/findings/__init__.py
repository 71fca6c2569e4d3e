"""Steps that share a cause, grouped, blamed and triaged."""
