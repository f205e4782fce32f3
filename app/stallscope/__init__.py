"""The commands and screens of stallscope; what they show comes from the package ``stallprobes``."""
