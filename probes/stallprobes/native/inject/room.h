/* The room that a process has for a recording (room.c). */
#ifndef STALLSCOPE_ROOM_H
#define STALLSCOPE_ROOM_H

#include <stdint.h>

/* Sizes of a recording: places of the ring of records, blocks of calls, CUPTI's buffers of both sizes, and what the file
 * may take beside its rings (bytes). */
struct ss_room {
    uint32_t records, blocks, large, small;
    uint64_t growing;
};
/* Why there is no file: one of enum SS_LACK, what is needed of it and what there is. */
struct ss_lack {
    uint32_t reason;
    uint64_t needed, available;
};
extern struct ss_lack ss_lack;
int ss_note_lack(uint32_t reason, uint64_t needed, uint64_t available);
int ss_note_error(int error, uint32_t otherwise);
uint32_t ss_count_threads(void);
int ss_find_room(struct ss_room *room, int folder, int calls_only, uint64_t file, uint64_t buffers);

#endif
