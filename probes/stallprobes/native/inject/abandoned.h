/* The end of a recording whose stallscope has ended (abandoned.c). */
#ifndef STALLSCOPE_ABANDONED_H
#define STALLSCOPE_ABANDONED_H

int ss_may_be_abandoned(void);
void ss_look_for_users(void);

#endif
