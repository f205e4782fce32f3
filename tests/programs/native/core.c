/* The core as a program of its own, for sanitizers and emulators: loops, the collector and CUPTI's callbacks at work in
 * several threads, over words that a reader looks at meanwhile.
 *
 * core CALLS: standard output: the measured calls of the loops, the records published, those with a call, and the values
 * counted. Exit code 0, or 1 with a message where something is wrong.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "core.h"
#include "cupti.h"
#include "histogram.h"

enum { PROBES = 3, CHANNELS = 2, CONTEXT = 1, NO_MORE = SS_CUPTI_NO_MORE_RECORDS, KERNEL_BYTES = 208, CALL_BYTES = 40 };

int64_t ss_helper_nothing(void);
int64_t ss_helper_store(int64_t address, int64_t value);
int64_t ss_helper_add(int64_t address, int64_t value);
int64_t ss_helper_wait(int64_t address, int64_t value, int64_t timeout_ns);
int64_t ss_helper_lock(int64_t address, int64_t timeout_ns);
int64_t ss_helper_gate(const int64_t *data);
int64_t ss_helper_mutex(const int64_t *data);
int64_t ss_helper_busy(const int64_t *data);
int64_t ss_helper_poll(int64_t query, int64_t handle, int64_t step_ns, int64_t timeout_ns);
int64_t ss_written_at(const int64_t *word, int64_t limit_ns);

struct probe {
    struct ss_probe_words words;
    uint64_t hist[CHANNELS + 1][SS_BUCKETS];
    struct ss_channel_stats stats[CHANNELS + 1];
    struct ss_sample samples[SS_SAMPLES];
    struct ss_host_call host_calls[SS_HOST_CALLS];
    struct ss_op_row rows[2];
};

static struct ss_board_header header;
static struct ss_timeline_words timeline;
static struct ss_gpu_record records[SS_GPU_RECORDS];
static struct probe probes[PROBES];
static struct ss_host_call queues[PROBES][SS_QUEUE];
static struct ss_track_op track_ops[PROBES][2];
static struct ss_track tracks[PROBES];
static struct ss_driver_call driver_calls[SS_IDS];
static struct ss_gpu_record batch[SS_BATCH], waiting[SS_MOST_KEPT];
static uint32_t order[SS_BATCH], merged[SS_BATCH];
static struct ss_gpu_clock gpu_clock = {.confirmed_ns = INT64_MAX / 2};
static struct ss_traced_context traced = {.number = CONTEXT};
static struct ss_collector collector;
static int64_t made[PROBES], wanted;
static int64_t words_of_program[4];

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int flush(uint32_t flag)
{
    (void)flag;
    return 0;
}

static size_t size_of(const uint8_t *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return kind == SS_KIND_KERNEL ? KERNEL_BYTES : CALL_BYTES;
}

static int next_record(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint8_t *next = *record ? *record + size_of(*record) : buffer;
    if (next >= buffer + valid)
        return NO_MORE;
    *record = next;
    return 0;
}

static int count_dropped(void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = 0;
    return 0;
}

/* What a probe calls: a launch whose kernel runs for 1 us. */
static int64_t launch(int64_t probe)
{
    static __thread uint8_t *buffer;
    static __thread size_t filled;
    int64_t now = ss_monotonic();
    uint32_t correlation = (uint32_t)(ss_add(made[probe], 1) * PROBES + probe + 1);
    while (!buffer) {
        size_t size, most;
        ss_requested(&buffer, &size, &most);
        filled = 0;
    }
    struct ss_kernel_record kernel = {
        .kind = SS_KIND_KERNEL, .start = (uint64_t)now, .end = (uint64_t)now + 1000, .context = CONTEXT,
        .stream = (uint32_t)probe, .correlation = correlation,
    };
    struct ss_driver_call_record call = {
        .kind = SS_KIND_DRIVER_CALL, .start = (uint64_t)now, .end = (uint64_t)now, .thread = (uint32_t)probe,
        .correlation = correlation,
    };
    memset(buffer + filled, 0, KERNEL_BYTES + CALL_BYTES);
    memcpy(buffer + filled, &call, sizeof call);
    memcpy(buffer + filled + CALL_BYTES, &kernel, sizeof kernel);
    filled += KERNEL_BYTES + CALL_BYTES;
    int64_t number = ss_load(made[probe]);
    /* A buffer is returned before the next one holds records, so that those of a stream come in order. */
    if (number % 16 == 0 || number == wanted) {
        ss_completed(NULL, 0, buffer, SS_BUFFER_BYTES, filled);
        buffer = NULL;
    }
    if (number == wanted)
        ss_store_release(probes[probe].words.run, 0);
    return 0;
}

static void *run(void *probe)
{
    struct probe *own = probe;
    struct ss_loop loop = {
        .ops = own->rows, .op_count = 2, .words = &own->words, .hist = own->hist[0], .stats = own->stats,
        .samples = own->samples, .host_calls = own->host_calls, .header = &header, .timeline = &timeline,
        .clock_gettime = clock_gettime, .clock_nanosleep = clock_nanosleep,
    };
    if (ss_run_once(&(struct ss_loop){.ops = &own->rows[1], .op_count = 1, .words = &own->words}))
        fail("the setup fails");
    ss_run(&loop);
    return NULL;
}

static void *collect(void *unused)
{
    (void)unused;
    ss_collect(&collector);
    return NULL;
}

/* Reads what the others write, as a snapshot does, and switches hold and slots. */
static int64_t read_all(void)
{
    int64_t sum = 0;
    for (int number = 0; number < PROBES; number++) {
        struct probe *own = &probes[number];
        sum += ss_load_acquire(own->words.samples) + ss_load_acquire(own->words.inflight_op);
        for (int channel = 0; channel < CHANNELS; channel++)
            for (int bucket = 0; bucket < SS_BUCKETS; bucket++)
                sum += (int64_t)ss_load_acquire(own->hist[channel][bucket]);
        sum += ss_load_acquire(own->samples[0].value_ns) + ss_load_acquire(own->host_calls[0].op);
    }
    return sum + ss_load_acquire(timeline.records) + ss_load_acquire(records[0].sequence);
}

static void prepare(void)
{
    for (int number = 0; number < PROBES; number++) {
        struct probe *own = &probes[number];
        own->words.run = 1;
        own->words.period_ns = number == 0 ? 0 : 50000;
        own->words.lead_ns = 50000;
        own->words.aligned = number == 1;
        own->words.slot.changes = 1;
        own->words.due_channel = 1;
        for (int channel = 0; channel <= CHANNELS; channel++)
            own->stats[channel].first_ns = -1;
        for (int row = 0; row < 2; row++) {
            own->rows[row] = (struct ss_op_row){
                .channel = SS_NONE, .label_channel = SS_NONE, .repeat = 1, .accepted = {SS_NONE, SS_NONE, SS_NONE},
            };
        }
        own->rows[0].function = (ss_function)(uintptr_t)launch;
        own->rows[0].arguments[0] = number;
        own->rows[0].channel = 0;
        own->rows[1].function = (ss_function)(uintptr_t)ss_helper_add;
        own->rows[1].arguments[0] = (int64_t)(uintptr_t)&words_of_program[0];
        own->rows[1].arguments[1] = 1;
        track_ops[number][0] = (struct ss_track_op){
            .records = 1, .start_rows = {SS_NO_ROW, SS_NO_ROW}, .early_rows = {SS_NO_ROW, SS_NO_ROW},
            .gpu_rows = {CHANNELS, SS_NO_ROW},
        };
        tracks[number] = (struct ss_track){
            .probe = number, .context = CONTEXT, .stream = number, .depth = 1024, .ops = track_ops[number],
            .queue = queues[number], .words = &own->words, .host_calls = own->host_calls, .hist = own->hist[0],
            .stats = own->stats,
        };
    }
    collector = (struct ss_collector){
        .version = 130100, .period_ns = 1000000, .patience = INT64_MAX, .flush = flush,
        .next_record = next_record, .count_dropped = count_dropped, .context_count = 1, .clock_count = 1,
        .track_count = PROBES, .contexts = &traced, .clocks = &gpu_clock, .tracks = tracks, .calls = driver_calls,
        .batch = batch, .waiting = waiting, .order = order, .merged = merged, .timeline = &timeline,
        .records = records,
    };
    timeline.on = 1;
}

static void *open_gate(void *unused)
{
    (void)unused;
    ss_helper_store((int64_t)(uintptr_t)&words_of_program[1], 1);
    return NULL;
}

/* The helpers that threads wait with. */
static void check_helpers(void)
{
    pthread_t opener;
    int64_t gate[3] = {(int64_t)(uintptr_t)&words_of_program[1], (int64_t)(uintptr_t)&words_of_program[2], 60000000000};
    int64_t mutex[3] = {(int64_t)(uintptr_t)&words_of_program[3], gate[1], 60000000000};
    int64_t busy[3] = {gate[1], 0, 1000};
    pthread_create(&opener, NULL, open_gate, NULL);
    if (ss_helper_gate(gate) || ss_helper_wait(gate[0], 1, 60000000000))
        fail("the gate stays closed");
    pthread_join(opener, NULL);
    if (ss_helper_mutex(mutex) || ss_helper_lock(mutex[0], 0) || ss_helper_lock(mutex[0], 1000) != 1)
        fail("the mutex is wrong");
    if (ss_helper_busy(busy) || words_of_program[2] != 1)
        fail("the host function does not count");
    if (ss_helper_poll((int64_t)(uintptr_t)ss_helper_nothing, 0, 0, 0))
        fail("the poll fails");
    if (ss_written_at(&words_of_program[2], 0) <= 0)
        fail("the word is not seen");
}

/* Counting at the ends of the range. */
static int64_t check_counting(void)
{
    static uint64_t counts[SS_BUCKETS];
    struct ss_channel_stats stats = {.first_ns = -1};
    const int64_t values[] = {INT64_MIN / 2, -1, 0, 1, SS_SUB - 1, SS_SUB, INT64_C(1) << 40, INT64_MAX / 4};
    for (size_t each = 0; each < sizeof values / sizeof *values; each++)
        ss_count(counts, &stats, values[each]);
    ss_count_passed(counts, &stats, INT64_C(3600000000000), 1000);
    if (ss_bucket(INT64_MAX) != SS_BUCKETS - 1 || ss_bucket(INT64_MIN) != 0)
        fail("the buckets are wrong");
    int64_t counted = 0;
    for (int bucket = 0; bucket < SS_BUCKETS; bucket++)
        counted += (int64_t)counts[bucket];
    if (counted != stats.count)
        fail("counts and statistics differ");
    return counted;
}

int main(int count, char **arguments)
{
    wanted = count == 2 ? atoll(arguments[1]) : 1000;
    pthread_t loops[PROBES], collecting;
    prepare();
    check_helpers();
    pthread_create(&collecting, NULL, collect, NULL);
    for (int number = 0; number < PROBES; number++)
        pthread_create(&loops[number], NULL, run, &probes[number]);
    int64_t sum = 0;
    for (int done = 0; !done;) {
        sum += read_all();
        ss_store_release(header.hold, ss_load(header.hold) ? 0 : 7);
        ss_sleep_until(ss_monotonic() + 1000000);
        done = 1;
        for (int number = 0; number < PROBES; number++)
            done &= ss_load_acquire(probes[number].words.state) == SS_PROBE_PARKED && !ss_load(probes[number].words.run);
        if (done)
            ss_store_release(header.hold, 0);
    }
    ss_store_release(header.quit, 1);
    for (int number = 0; number < PROBES; number++)
        pthread_join(loops[number], NULL);
    ss_store_release(collector.stop, 1);
    pthread_join(collecting, NULL);
    collector.patience = 0;
    ss_collect_once(&collector, 1);
    int64_t measured = 0, matched = 0;
    for (int number = 0; number < PROBES; number++) {
        struct probe *own = &probes[number];
        if (own->words.state != SS_PROBE_ENDED || own->words.iterations != wanted)
            fail("a loop has not ended");
        measured += own->stats[0].count;
        matched += own->stats[CHANNELS].count;
        int64_t counted = 0;
        for (int bucket = 0; bucket < SS_BUCKETS; bucket++)
            counted += (int64_t)own->hist[0][bucket];
        if (counted != own->stats[0].count || own->stats[1].count < counted)
            fail("a histogram is wrong");
    }
    ss_discard_buffers(1);
    if (timeline.unknown || timeline.dropped || sum < 0)
        fail("records were lost");
    printf("%lld %lld %lld %lld\n", (long long)measured, (long long)timeline.records, (long long)matched,
           (long long)check_counting());
    return 0;
}
