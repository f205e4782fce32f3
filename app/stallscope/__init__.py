"""Commands, reports and screens of stallscope. Measurements come from the package ``stallprobes``."""
