/* Requests of stallscope while the program runs (control.c). */
#ifndef STALLSCOPE_CONTROL_H
#define STALLSCOPE_CONTROL_H

int ss_start_control(void);
void ss_end_at_last(void);

#endif
