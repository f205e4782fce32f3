"""``python -m stallscope`` is the command ``stallscope``."""

from stallscope.cli.entry import main

main()
