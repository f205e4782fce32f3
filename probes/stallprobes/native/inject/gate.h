/* The gate, and how long calls are held (gate.c). */
#ifndef STALLSCOPE_GATE_H
#define STALLSCOPE_GATE_H

#include <stdint.h>

void ss_use_gate(int on);
int ss_gate_is_used(void);
void ss_forget_flight(uint32_t number);
int ss_enter_gate(int64_t number, uint32_t *held);
void ss_note_flight(int64_t number, uint64_t began_ns);
void ss_leave_gate(int64_t number);
int ss_close_gate(int patient);
void ss_open_gate(void);
void ss_note_hold(uint64_t began);
void ss_note_switch(uint64_t began, int gated, uint64_t let_through);
uint64_t ss_rest_after(uint64_t began, uint64_t held_since);
uint64_t ss_longest_hold(void);
void ss_forget_holds(void);

#endif
