/* The schedule as the simulated GPU calls it. */
#include "schedule.h"

/* What the thread does now: a NextStep. If it iterates, the iteration has begun. */
SS_EXPORTED int ss_schedule_next(struct ss_schedule *at)
{
    int next = ss_next(at);
    if (next == SS_NEXT_ITERATE)
        ss_begin_iteration(at);
    return next;
}

SS_EXPORTED void ss_schedule_end(struct ss_schedule *at)
{
    ss_end_iteration(at);
}
