/* Samples of the threads' time: where in the program it passes, inside calls and between them.
 *
 * Each thread adds up the time inside its outermost calls, and that between them. At random points of either sum, one in
 * SAMPLE_NS on average, a stack is taken: at the exit of the call, or at the entry of the call before which the time
 * passed. A sample stands for the time since the point before, so that the samples of a thread add up to its time. That
 * the distances are random keeps a program whose steps take as long from being seen at one place of a step alone.
 *
 * Thousands of short waits have hardly any of that time: one of so many of a thread's waits has a sample too, as many as
 * pass in WAIT_SAMPLE_NS on average, which stands for their number.
 */

#include "samples.h"
#include "space.h"
#include "stack.h"
#include "state.h"
#include "threads.h"

enum {
    /* Longest time, in multiples of SAMPLE_NS, for which a sample waits until its thread may spend time on a stack.
     * After this time, the sample is written without a stack. */
    MOST_DEFERRED = 64,
    /* Largest number of sampling points of one long time that have random distances: the last ones. Earlier points have
     * the mean distance SAMPLE_NS. */
    MOST_POINTS = 16,
    /* Largest mean number of waits per sampled wait. Reason for a limit: the number follows from the rate of waits,
     * which may be measured in a very short time. */
    MOST_WAITS = 1 << 16,
};
/* State of the space for the ring. NONE: the file has no space for the ring. ASKED: a thread requests the space. READY:
 * the file has the space. */
enum { NONE, ASKED, READY };

static uint32_t space;

/* For a new file. */
void ss_begin_samples(void)
{
    ss_store(space, NONE);
}

/* Xorshift, of a state that is never 0. */
static uint64_t next_random(struct ss_sampling *sampling)
{
    uint64_t value = sampling->random;
    value ^= value << 13;
    value ^= value >> 7;
    value ^= value << 17;
    return sampling->random = value;
}

static uint64_t next_distance(struct ss_sampling *sampling)
{
    return SS_SAMPLE_NS / 2 + next_random(sampling) % SS_SAMPLE_NS;
}

/* The clocks of a thread that has just got a slot: its time begins. */
struct ss_sampling ss_begin_sampling(uint32_t thread)
{
    uint64_t now = ss_clock();
    struct ss_sampling sampling = {
        .credit.parts = SS_TIME_PARTS,
        .wait_credit.parts = SS_WAIT_PARTS,
        .left_ns = now,
        .random = (now << 20 ^ thread) | 1,
        .chosen_ns = now,
    };
    sampling.taken_ns[SS_SAMPLED_BETWEEN] = now;
    for (int of = 0; of < 2; of++) {
        uint64_t first = sampling.taken_ns[of] + 1 + next_random(&sampling) % SS_SAMPLE_NS;
        sampling.due_ns[of] = ss_has_stacks() ? first : UINT64_MAX;
    }
    return sampling;
}

/* The library's own time is none between calls. */
void ss_leave_out(struct ss_sampling *sampling, uint64_t ns)
{
    if (!ss_has_stacks())
        return;
    sampling->due_ns[SS_SAMPLED_BETWEEN] += ns;
    sampling->taken_ns[SS_SAMPLED_BETWEEN] += ns;
}

/* Whether the ring has space, which one thread gives it. */
static int has_space(void)
{
    uint32_t expected = NONE;
    if (ss_likely(ss_load_acquire(space) == READY))
        return 1;
    if (ss_lacks_space() ||
        !__atomic_compare_exchange_n(&space, &expected, ASKED, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return 0;
    if (ss_give_space(SS_SAMPLES_AT, SS_TIME_SAMPLES * sizeof(struct ss_time_sample))) {
        ss_store_release(space, NONE);
        return 0;
    }
    ss_store_release(space, READY);
    return 1;
}

/* Writes a sample; 0 if another thread, a whole ring behind, still writes to its place. */
static int write_sample(const struct ss_time_sample *sample)
{
    uint64_t number = ss_add(ss_header->samples, 1);
    struct ss_time_sample *written = (struct ss_time_sample *)ss_at(SS_SAMPLES_AT) + number % SS_TIME_SAMPLES;
    uint64_t before = ss_load(written->sequence);
    if (before % 2 || before > 2 * number ||
        !__atomic_compare_exchange_n(&written->sequence, &before, 2 * number + 1, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return 0;
    ss_fence();
    ss_store(written->at_ns, sample->at_ns);
    ss_store(written->since_ns, sample->since_ns);
    ss_store(written->ns, sample->ns);
    ss_store(written->cpu_ns, ss_thread_cpu());
    ss_store(written->thread, sample->thread);
    ss_store(written->stack, sample->stack);
    ss_store(written->api, sample->api);
    ss_store(written->sampled, sample->sampled);
    ss_store(written->holder, sample->holder);
    ss_store_release(written->sequence, 2 * number + 2);
    return 1;
}

/* The last point of a clock until ``now``; ``next`` becomes the one after it. */
static uint64_t last_point(struct ss_sampling *sampling, int sampled, uint64_t now, uint64_t *next)
{
    uint64_t point = sampling->due_ns[sampled], distance;
    uint64_t points = (now - point) / SS_SAMPLE_NS;
    if (points > MOST_POINTS)
        point += (points - MOST_POINTS) * SS_SAMPLE_NS;
    for (distance = next_distance(sampling); now - point >= distance; distance = next_distance(sampling))
        point += distance;
    *next = point + distance;
    return point;
}

/* Takes the sample that is due. ``sample`` has all but the time that it stands for; without a stack, one is taken. If it
 * costs more than the thread may spend, a later point gets the sample, which then stands for more: to take it as soon as
 * the thread may would prefer what follows a time in which it could save. Where ``stacks`` of that time are known,
 * ``count`` of them, each stands for an equal part of it, with one of the ``holders`` of Python's lock. */
void ss_take_sample(struct ss_sampling *sampling, struct ss_time_sample *sample, const uint32_t *stacks,
                    const uint32_t *holders, uint32_t count)
{
    int sampled = (int)sample->sampled;
    uint64_t now = sampled == SS_SAMPLED_INSIDE ? sampling->inside_ns : sample->at_ns - sampling->inside_ns;
    uint64_t next, point = last_point(sampling, sampled, now, &next);
    int wanted = has_space();
    if (wanted && !count && !sample->stack)
        sample->stack = ss_stack_of_call(&sampling->credit, sample->api, sample->since_ns, sample->at_ns);
    uint64_t whole = point - sampling->taken_ns[sampled];
    sampling->due_ns[sampled] = next;
    for (uint32_t number = 0; number + 1 < count && wanted; number++) {
        sample->stack = stacks[number];
        sample->holder = (uint16_t)holders[number];
        sample->ns = whole / count;
        if (write_sample(sample))
            sampling->taken_ns[sampled] += sample->ns;
    }
    sample->stack = count ? stacks[count - 1] : sample->stack;
    sample->holder = count ? (uint16_t)holders[count - 1] : 0;
    sample->ns = point - sampling->taken_ns[sampled];
    if (wanted && (sample->stack || sample->ns >= (uint64_t)MOST_DEFERRED * SS_SAMPLE_NS) && write_sample(sample))
        sampling->taken_ns[sampled] = point;
}

/* After how many more waits the next sample is due, by how many there were in the time before. */
static void choose_distance(struct ss_sampling *sampling, uint64_t now)
{
    uint64_t elapsed = now > sampling->chosen_ns ? now - sampling->chosen_ns : 1;
    uint64_t usual = sampling->passed * SS_WAIT_SAMPLE_NS / elapsed;
    usual = usual < 1 ? 1 : usual > MOST_WAITS ? MOST_WAITS : usual;
    sampling->distance = 1 + next_random(sampling) % (2 * usual - 1);
    sampling->chosen_ns = now;
    sampling->passed = 0;
}

/* Counts a wait that returns at ``now``. Returns whether it is one for which a sample is due: none of the first moments,
 * in which stacks say how the thread is called. */
int ss_count_wait(struct ss_sampling *sampling, uint64_t now)
{
    sampling->waits++;
    sampling->passed++;
    if (sampling->distance)
        return sampling->passed >= sampling->distance && ss_has_stacks();
    if (now > sampling->chosen_ns + SS_WAIT_SAMPLE_NS)
        choose_distance(sampling, now);
    return 0;
}

/* Takes the sample of a wait that is due, as ss_take_sample. Without a stack, a later wait has the sample. */
void ss_take_wait(struct ss_sampling *sampling, struct ss_time_sample *sample)
{
    choose_distance(sampling, sample->at_ns);
    if (!has_space())
        return;
    if (!sample->stack)
        sample->stack = ss_stack_of_call(&sampling->wait_credit, sample->api, sample->since_ns, sample->at_ns);
    sample->ns = sampling->waits;
    if (sample->stack && write_sample(sample))
        sampling->waits = 0;
}
