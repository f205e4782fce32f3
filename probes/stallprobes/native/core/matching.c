/* Matching of GPU records with the calls that submitted them.
 *
 * A track is one probe's use of one stream. Work on a stream starts in the order of its calls, so on a stream that one
 * probe uses alone the next record belongs to the next call, with two conditions: a call begins before its work starts,
 * and the work has started before the call begins that comes ``depth`` later, or, where the iteration waits for it,
 * before the first call of the next iteration. The second one finds the place again after records were lost. On a stream
 * that several probes use, and for calls that use two GPUs, the record's correlation id leads to the driver call, its
 * time and its thread, and so to the probe's call.
 *
 * The driver runs some calls' work on a stream of its own, which no track has: a copy from the host to another GPU, and
 * the second half of a staged copy to it. All records of one call have its correlation id, so such a record belongs to
 * the call of the earlier record with the same id, or to the driver call with it. The time on the GPU of a staged copy
 * is that of both halves; what is between them is a delay. Their records are copies from device to host and from host to
 * device, although both memories are GPUs'.
 */
#include "core.h"
#include "histogram.h"

/* A record's ``memory`` if source and target of the copy are GPU memory. */
enum { BETWEEN_GPUS = SS_MEMORY_DEVICE | SS_MEMORY_DEVICE << 8 };

static struct ss_host_call *queued(const struct ss_track *track, int64_t number)
{
    return &track->queue[number % SS_QUEUE];
}

static const struct ss_track_op *op_of(const struct ss_track *track, int64_t op)
{
    return &track->ops[op & SS_CALL_OP_MASK];
}

static struct ss_driver_call *driver_call_of(const struct ss_collector *collector, const struct ss_gpu_record *record)
{
    return &collector->calls[record->correlation % SS_IDS];
}

/* Appends the probe's new submissions to the track's queue, and drops the oldest ones if it is full. */
void ss_load_calls(struct ss_track *track, struct ss_timeline_words *timeline)
{
    int64_t head = ss_load_acquire(track->words->host_calls);
    for (int64_t number = ss_most(track->loaded, head - SS_HOST_CALLS + 1); number < head; number++) {
        const struct ss_host_call *call = &track->host_calls[number % SS_HOST_CALLS];
        int64_t op = ss_load_acquire(call->op);
        if (!op_of(track, op)->records)
            continue;
        if (track->newest - track->oldest >= SS_QUEUE) {
            track->oldest++;
            ss_increase(timeline->unanswered, 1);
        }
        *queued(track, track->newest++) = (struct ss_host_call){
            .began_ns = ss_load_acquire(call->began_ns),
            .returned_ns = ss_load_acquire(call->returned_ns),
            .op = op,
            .iteration = ss_load_acquire(call->iteration),
        };
    }
    track->loaded = head;
}

/* Adds a value in ns to the rows of a phase if the call was measured; the first iteration is kept apart. */
static void count_phase(const struct ss_track *track, const int64_t *rows, int64_t value, int64_t op)
{
    if (!(op & SS_CALL_MEASURED))
        return;
    for (int each = 0; each < SS_PHASE_ROWS; each++) {
        if (rows[each] == SS_NO_ROW)
            continue;
        struct ss_channel_stats *stats = &track->stats[rows[each]];
        if (op & SS_CALL_FIRST)
            ss_keep_first(stats, value);
        else
            ss_count(track->hist + SS_BUCKETS * rows[each], stats, value);
    }
}

/* Counts the time on the GPU of a call, once its last record is there. */
static void count_gpu(const struct ss_track *track, const struct ss_gpu_record *record, int64_t op)
{
    count_phase(track, op_of(track, op)->gpu_rows, ss_most(record->end_ns - track->group_start_ns, 0), op);
}

static void attach(struct ss_gpu_record *record, const struct ss_track *track, const struct ss_host_call *call)
{
    record->probe = track->probe;
    record->op = call->op & SS_CALL_OP_MASK;
    record->iteration = call->iteration;
    record->began_ns = call->began_ns;
    record->returned_ns = call->returned_ns;
}

/* Whether the record is the half of a staged copy to another GPU that goes in this direction. */
static int is_half(const struct ss_gpu_record *record, int64_t copy)
{
    return record->kind == SS_KIND_COPY && record->subkind == copy && record->memory == BETWEEN_GPUS;
}

/* Whether the record is the first half of a staged copy, whose second half has its id. */
static int is_first_half(const struct ss_gpu_record *record)
{
    return is_half(record, SS_COPY_DEVICE_TO_HOST) && record->correlation;
}

/* Gives the record to the call ``number`` of the queue; the calls before it have no record. */
static void take_call(struct ss_collector *collector, struct ss_track *track, int64_t number,
                      struct ss_gpu_record *record)
{
    ss_increase(collector->timeline->unanswered, number - track->oldest);
    track->oldest = number + 1;
    const struct ss_host_call *call = queued(track, number);
    const struct ss_track_op *op = op_of(track, call->op);
    attach(record, track, call);
    int64_t delay = record->start_ns - call->returned_ns;
    count_phase(track, delay < 0 ? op->early_rows : op->start_rows, delay < 0 ? -delay : delay, call->op);
    track->left = op->records - 1;
    track->group_start_ns = record->start_ns;
    track->group_correlation = record->correlation;
    track->group_place = number;
    track->has_group = 1;
    if (!track->left && !is_first_half(record))
        count_gpu(track, record, call->op);
}

/* Whether the record belongs to the call that was matched last, which yields several. */
static int continues(const struct ss_gpu_record *record, const struct ss_track *track)
{
    if (!track->has_group)
        return 0;
    if (!record->correlation || !track->group_correlation)
        return track->left > 0;
    return record->correlation == track->group_correlation;
}

/* Whether the work of the call ``number`` of the queue had certainly started at ``start``. */
static int has_started(const struct ss_track *track, int64_t number, int64_t start)
{
    const struct ss_host_call *call = queued(track, number);
    int64_t ahead = track->depth;
    if (op_of(track, call->op)->awaited)
        for (int64_t nearer = 1; nearer < track->depth; nearer++)
            if (queued(track, number + nearer)->iteration != call->iteration) {
                ahead = nearer;
                break;
            }
    return number + ahead < track->newest && queued(track, number + ahead)->began_ns + SS_TOLERANCE_NS <= start;
}

/* Finds the call of the track during which the driver call was made. */
static enum ss_match match_driver_call(struct ss_collector *collector, struct ss_track *track,
                                       const struct ss_driver_call *made, struct ss_gpu_record *record)
{
    for (int64_t number = track->oldest; number < track->newest; number++) {
        const struct ss_host_call *call = queued(track, number);
        if (call->began_ns <= made->start_ns + SS_TOLERANCE_NS && made->end_ns <= call->returned_ns + SS_TOLERANCE_NS) {
            take_call(collector, track, number, record);
            return SS_MATCHED;
        }
    }
    return SS_LATER;
}

/* Finds the call of a record of the track's stream, and counts its phases.
 *
 * SS_LATER if its call may not have returned yet. With a thread in the track, only a call of that thread is its own:
 * SS_NO_CALL then also means that another track's is. */
static enum ss_match match_on_track(struct ss_collector *collector, struct ss_track *track,
                                    struct ss_gpu_record *record)
{
    if (continues(record, track)) {
        const struct ss_host_call *call = queued(track, track->group_place);
        attach(record, track, call);
        if (track->left > 0 && !--track->left)
            count_gpu(track, record, call->op);
        return SS_MATCHED;
    }
    if (track->thread) {
        const struct ss_driver_call *made = driver_call_of(collector, record);
        if (!record->correlation || made->id != record->correlation)
            return SS_LATER;
        return made->thread == track->thread ? match_driver_call(collector, track, made, record) : SS_NO_CALL;
    }
    int64_t number = track->oldest;
    while (number < track->newest && has_started(track, number, record->start_ns))
        number++;
    if (number >= track->newest)
        return SS_LATER;
    if (queued(track, number)->began_ns > record->start_ns + SS_TOLERANCE_NS)
        return SS_NO_CALL;
    take_call(collector, track, number, record);
    return SS_MATCHED;
}

/* Notes the call of a record by its correlation id, and its track for a second half. */
static void note_owner(struct ss_collector *collector, const struct ss_track *track, const struct ss_gpu_record *record)
{
    if (!record->correlation)
        return;
    struct ss_driver_call *made = driver_call_of(collector, record);
    made->owned_id = record->correlation;
    made->probe = record->probe;
    made->iteration = record->iteration;
    made->began_ns = record->began_ns;
    made->returned_ns = record->returned_ns;
    made->op = queued(track, track->group_place)->op;
    made->staged_track = is_first_half(record) ? track - collector->tracks + 1 : 0;
    made->staged_ns = record->end_ns - track->group_start_ns;
}

/* Notes that the record with this correlation id waits for its call. */
static void note_waiting(struct ss_collector *collector, const struct ss_gpu_record *record)
{
    if (!record->correlation)
        return;
    struct ss_driver_call *made = driver_call_of(collector, record);
    made->owned_id = record->correlation;
    made->probe = SS_NO_PROBE;
}

/* Finds the call of the first record with its id, whose stream no track has, by the driver call's thread and time.
 *
 * The second half of a staged copy is never the first record: it would start a call too late. */
static enum ss_match match_by_thread(struct ss_collector *collector, struct ss_gpu_record *record)
{
    if (is_half(record, SS_COPY_HOST_TO_DEVICE))
        return SS_NO_CALL;
    const struct ss_driver_call *made = driver_call_of(collector, record);
    int known = made->id == record->correlation;
    enum ss_match answer = SS_NO_CALL;
    for (uint64_t number = 0; number < collector->track_count; number++) {
        struct ss_track *track = &collector->tracks[number];
        if (!track->thread || (known && made->thread != track->thread))
            continue;
        answer = SS_LATER;
        if (known && match_driver_call(collector, track, made, record) == SS_MATCHED) {
            note_owner(collector, track, record);
            return SS_MATCHED;
        }
    }
    return answer;
}

/* Finds the call of a record whose stream no track has, by its correlation id.
 *
 * After an earlier record of the call it counts the time on the GPU of a staged copy whose second half it is; the call's
 * other phases are of that earlier record. */
static enum ss_match match_by_id(struct ss_collector *collector, struct ss_gpu_record *record)
{
    if (!record->correlation)
        return SS_NO_CALL;
    struct ss_driver_call *made = driver_call_of(collector, record);
    if (made->owned_id != record->correlation)
        return match_by_thread(collector, record);
    if (made->probe == SS_NO_PROBE)
        return SS_LATER;
    if (record->start_ns + SS_TOLERANCE_NS < made->began_ns)
        return SS_NO_CALL;
    record->probe = made->probe;
    record->op = made->op & SS_CALL_OP_MASK;
    record->iteration = made->iteration;
    record->began_ns = made->began_ns;
    record->returned_ns = made->returned_ns;
    if (made->staged_track && is_half(record, SS_COPY_HOST_TO_DEVICE)) {
        const struct ss_track *track = &collector->tracks[made->staged_track - 1];
        int64_t value = ss_most(made->staged_ns + record->end_ns - record->start_ns, 0);
        count_phase(track, op_of(track, made->op)->gpu_rows, value, made->op);
        made->staged_track = 0;
    }
    return SS_MATCHED;
}

/* Gives the record to the first track of its stream that claims it, else to the call with its correlation id. */
enum ss_match ss_match_record(struct ss_collector *collector, struct ss_gpu_record *record)
{
    enum ss_match answer = SS_NO_CALL;
    for (uint64_t number = 0; number < collector->track_count; number++) {
        struct ss_track *track = &collector->tracks[number];
        if (track->context != record->context || track->stream != record->stream)
            continue;
        enum ss_match found = match_on_track(collector, track, record);
        if (found == SS_MATCHED) {
            note_owner(collector, track, record);
            return SS_MATCHED;
        }
        if (found == SS_LATER)
            answer = SS_LATER;
    }
    if (answer == SS_LATER) {
        note_waiting(collector, record);
        return SS_LATER;
    }
    return match_by_id(collector, record);
}
