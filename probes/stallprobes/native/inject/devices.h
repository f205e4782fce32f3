/* The GPUs of the process (devices.c). */
#ifndef STALLSCOPE_DEVICES_H
#define STALLSCOPE_DEVICES_H

int ss_note_devices(void);

#endif
