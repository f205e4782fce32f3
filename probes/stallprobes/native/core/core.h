/* What the files of the core share, and what Python calls of it. */
#ifndef STALLSCOPE_CORE_H
#define STALLSCOPE_CORE_H

#include <stdint.h>

#include "layout.h"
#include "words.h"

/* loop.c */
void ss_run(const struct ss_loop *loop);
int64_t ss_run_once(const struct ss_loop *loop);
void ss_count_passed(uint64_t *counts, struct ss_channel_stats *stats, int64_t value, int64_t period);

/* schedule.c */
int ss_schedule_next(struct ss_schedule *at);
void ss_schedule_end(struct ss_schedule *at);

/* collector.c */
void ss_collect(struct ss_collector *collector);
void ss_collect_once(struct ss_collector *collector, uint32_t flag);

/* matching.c: result of the search for the call of a record. SS_MATCHED: the call was found. SS_NO_CALL: the record has
 * no known call. SS_LATER: the search is to be repeated later. */
enum ss_match { SS_MATCHED, SS_NO_CALL, SS_LATER };
void ss_load_calls(struct ss_track *track, struct ss_timeline_words *timeline);
enum ss_match ss_match_record(struct ss_collector *collector, struct ss_gpu_record *record);

/* gpu_clock.c: context switches on the host's clock. */
int ss_to_host_time(const struct ss_collector *collector, struct ss_gpu_record *record);
void ss_follow_clock(struct ss_collector *collector, const struct ss_gpu_record *record, int64_t now);
int ss_is_stale(const struct ss_collector *collector, int64_t now);

#endif
