"""``python -m stallscope`` is the command ``stallscope``."""

from stallscope.cli import main

main()
