"""The compiled metrics of workloads, in processes of their own."""
