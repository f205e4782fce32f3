/* What all files of the library know of the process and of its recording. */
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "state.h"

struct ss_settings ss_settings;
struct ss_private *ss_private;
struct ss_file_header *ss_header;
struct ss_control *ss_control;
uint32_t ss_file;
uint64_t ss_lost_before_file;
static uint32_t exiting;

uint64_t ss_clock(void)
{
    return (uint64_t)ss_monotonic();
}

uint64_t ss_real_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *ss_at(uint64_t offset)
{
    return (unsigned char *)ss_header + offset;
}

void ss_count_lost(int kind, uint64_t count)
{
    if (ss_load_acquire(ss_private->recording) == SS_OPEN)
        ss_add(ss_header->losses[kind], count);
    else
        ss_add(ss_lost_before_file, count);
}

/* fstat, which glibc has as a function from 2.33 on only; the kernel's structure is that of the C library. */
int ss_file_status(int descriptor, struct stat *status)
{
    return (int)syscall(SYS_fstat, descriptor, status);
}

/* What follows a decimal number, which is at most UINT64_MAX; NULL without one. strtoull has other names and versions in
 * newer C libraries. */
const char *ss_parse_number(const char *text, uint64_t *number)
{
    const char *at = text;
    *number = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (*number > (UINT64_MAX - digit) / 10)
            return NULL;
        *number = *number * 10 + digit;
    }
    return at == text ? NULL : at;
}

/* Whether this process records, to the file that is open. */
void ss_set_recording(uint32_t recording)
{
    ss_store_release(ss_private->file, recording == SS_OPEN ? ss_file : 0);
    ss_store_release(ss_private->recording, recording);
}

void ss_note_step(const char *function)
{
    if (!ss_control)
        return;
    memset(ss_control->step, 0, sizeof ss_control->step);
    strncpy(ss_control->step, function, sizeof ss_control->step - 1);
}

/* Whether the program exits. */
int ss_is_exiting(void)
{
    return (int)ss_load_acquire(exiting);
}

/* For the exit of the program: CUPTI is not asked for anything from then on. */
void ss_begin_exit(void)
{
    ss_store_release(exiting, 1);
}

/* The next name in a folder; NULL behind the last one, and without a folder. */
const char *ss_next_name(struct ss_listing *listing)
{
    /* Offsets (bytes) in struct linux_dirent64. */
    enum { LENGTH_AT = 16, NAME_AT = 19 };
    uint16_t length;
    if (listing->at >= listing->bytes) {
        listing->bytes = listing->descriptor < 0 ? -1
                                                 : syscall(SYS_getdents64, listing->descriptor, listing->entries,
                                                           sizeof listing->entries);
        listing->at = 0;
    }
    if (listing->bytes <= 0)
        return NULL;
    const char *entry = listing->entries + listing->at;
    memcpy(&length, entry + LENGTH_AT, sizeof length);
    listing->at += length;
    return entry + NAME_AT;
}
