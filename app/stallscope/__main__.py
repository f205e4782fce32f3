"""Entry point of ``python -m stallscope``."""

from stallscope.cli.entry import main

main()
