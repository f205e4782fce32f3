"""``python -m stallscope`` is the command ``stallscope``."""

from stallscope.start import main

main()
