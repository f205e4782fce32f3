/* NVTX ranges of the program: the names of those that each thread has pushed and not yet popped, and of those that were
 * started and not yet ended, which belong to no thread; and, for each thread and name, when ranges began.
 *
 * NVTX loads the library that NVTX_INJECTION64_PATH names at the program's first call of it, once for each copy of NVTX
 * in the program, and lets it set the functions that are called from then on.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

#include "nvtx.h"
#include "slots.h"
#include "space.h"
#include "state.h"

/* CALLBACKS: number of the table of callbacks (NVTX_ETID_CALLBACKS). CORE, CORE2: modules of functions
 * (NVTX_CB_MODULE_). */
enum { CALLBACKS = 1, CORE = 1, CORE2 = 5 };
/* Numbers of functions in the module CORE (NVTX_CBID_CORE_). */
enum { START_EX = 4, START_A = 5, START_W = 6, END = 7, PUSH_EX = 8, PUSH_A = 9, PUSH_W = 10, POP = 11 };
/* Numbers of functions in the module CORE2 (NVTX_CBID_CORE2_). */
enum { DOMAIN_START = 2, DOMAIN_END = 3, DOMAIN_PUSH = 4, DOMAIN_POP = 5, REGISTER_A = 10, REGISTER_W = 11, CREATE_A = 12, CREATE_W = 13 };
/* Types of the message of a range (nvtxMessageType_t). */
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE = 2, MESSAGE_REGISTERED = 3 };
/* Largest number of nested ranges of a thread whose names are kept; deeper ranges are only counted. */
enum { DEPTH = 32 };
/* STARTED: largest number of started ranges that are kept at a time. NUMBER_BITS: number of low bits of an id that have
 * the number of the range. NOT_KEPT: number of a range that is not kept. */
enum { STARTED = 64, NOT_KEPT = 127, NUMBER_BITS = 7 };
/* State of a place for a started range. UNUSED: the place has no range. CHANGING: a thread is changing the place. Any
 * other state is the id of the range in the place. */
enum { UNUSED = 0, CHANGING = 1 };

typedef void (*nvtx_function)(void);

struct callback_table {
    size_t size;
    int (*get_functions)(int module, nvtx_function ***functions, unsigned *count);
};

/* nvtxEventAttributes_t, versions 1 and 2. */
struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};
_Static_assert(offsetof(struct attributes, message_type) == 32, "nvtxEventAttributes_t");
_Static_assert(offsetof(struct attributes, message) == 40, "nvtxEventAttributes_t");

/* ``named`` are the ranges of its name in the file with the number ``file``; NULL if these are not kept. */
struct range {
    const void *domain;
    struct ss_named_range *named;
    uint64_t began_ns;
    uint32_t file;
    char text[SS_RANGE];
};

/* ``state`` guards the rest: any thread may start or end a range while another one reads it. */
struct started_range {
    uint64_t state;
    uint64_t start_ns;
    struct ss_named_range *named;
    uint32_t file;
    uint64_t text[SS_RANGE / sizeof(uint64_t)];
};

/* What a thread has: the ranges that it has pushed, and by the hash of their names all that it has begun, of which
 * ``names`` have been looked up in the file with the number ``file``. */
struct ranges {
    int depth;
    int beyond;
    uint32_t file;
    uint32_t names;
    struct {
        uint64_t hash;
        struct ss_named_range *named;
    } known[SS_THREAD_RANGES];
    struct range stack[DEPTH];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end;
static int usable;
static uint64_t domains;
static struct started_range started[STARTED];
static uint64_t started_count;
static __thread struct ranges *ranges;

/* The number of this process's file; 0 while it has none: before the driver is initialized, or just forked. */
static uint32_t open_file(void)
{
    struct ss_private *private = ss_load_acquire(ss_private);
    return private && ss_load_acquire(private->recording) == SS_OPEN ? ss_file : 0;
}

static void end_thread(void *own)
{
    struct ranges *of = own;
    if (of->names && of->file == open_file())
        for (uint32_t number = 0; number < of->names; number++)
            if (of->known[number].named)
                ss_release_range(of->known[number].named);
    ranges = NULL;
    free(own);
}

static void prepare(void)
{
    usable = !pthread_key_create(&thread_end, end_thread);
}

static void copy_text(char *text, const char *name)
{
    if (name)
        memcpy(text, name, strnlen(name, sizeof ((struct range *)0)->text - 1));
}

/* As UTF-8. */
static void copy_wide(char *text, const wchar_t *name)
{
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    size_t at = 0, most = sizeof ((struct range *)0)->text - 1;
    for (; name && *name; name++) {
        uint32_t letter = (uint32_t)*name;
        if (letter > 0x10ffff)
            letter = '?';
        int more = letter < 0x80 ? 0 : letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
        if (at + (size_t)more + 1 > most)
            return;
        text[at++] = (char)(first[more] | letter >> 6 * more);
        while (more--)
            text[at++] = (char)(0x80 | (letter >> 6 * more & 0x3f));
    }
}

static void copy_message(char *text, const struct attributes *event)
{
    if (!event || event->size < sizeof *event || !event->message)
        return;
    if (event->message_type == MESSAGE_ASCII)
        copy_text(text, event->message);
    else if (event->message_type == MESSAGE_WIDE)
        copy_wide(text, event->message);
    else if (event->message_type == MESSAGE_REGISTERED)
        copy_text(text, ((const struct range *)event->message)->text);
}

/* What the calling thread has; NULL if there is no memory for it. */
static struct ranges *own_ranges(void)
{
    if (!ranges) {
        ranges = calloc(1, sizeof *ranges);
        if (ranges && pthread_setspecific(thread_end, ranges)) {
            free(ranges);
            ranges = NULL;
        }
    }
    return ranges;
}

/* The name of all ranges that differ in their numbers alone. Returns its hash (FNV-1a). */
static uint64_t common_name(const char *text, char *name)
{
    uint64_t hash = 0xcbf29ce484222325;
    int number = 0;
    memset(name, 0, SS_RANGE);
    for (; *text; text++) {
        int digit = *text >= '0' && *text <= '9';
        if (digit && number)
            continue;
        number = digit;
        *name = digit ? '#' : *text;
        hash = (hash ^ (unsigned char)*name++) * 0x100000001b3;
    }
    return hash;
}

/* The ranges of the calling thread with this name in the file with a number; NULL if they are not kept. */
static struct ss_named_range *named_ranges(const char *text, uint32_t file)
{
    struct ranges *own = own_ranges();
    char name[SS_RANGE];
    if (!own)
        return NULL;
    if (own->file != file) {
        own->file = file;
        own->names = 0;
    }
    uint64_t hash = common_name(text, name);
    for (uint32_t number = 0; number < own->names; number++)
        if (own->known[number].hash == hash)
            return own->known[number].named;
    if (own->names == SS_THREAD_RANGES)
        return NULL;
    struct ss_named_range *named = ss_claim_range(name, (uint32_t)syscall(SYS_gettid));
    /* A lack of space may pass. */
    if (!named && ss_lacks_space())
        return NULL;
    own->known[own->names].hash = hash;
    own->known[own->names++].named = named;
    return named;
}

/* Notes that a range, whose name is complete, begins. */
static void note_begin(struct range *range)
{
    range->file = open_file();
    range->named = range->file && *range->text ? named_ranges(range->text, range->file) : NULL;
    if (!range->named)
        return;
    range->began_ns = ss_clock();
    uint64_t begun = ss_load(range->named->begun);
    ss_store(range->named->begins[begun % SS_RANGE_BEGINS], range->began_ns);
    ss_store_release(range->named->begun, begun + 1);
}

static void note_end(struct ss_named_range *named, uint32_t file, uint64_t began_ns)
{
    if (named && file == open_file())
        ss_add(named->inside_ns, ss_clock() - began_ns);
}

/* A new range, without a name; NULL if there is no place for it. */
static struct range *push(const void *domain)
{
    struct ranges *own = own_ranges();
    if (!own)
        return NULL;
    if (own->depth == DEPTH) {
        own->beyond++;
        return NULL;
    }
    struct range *range = &own->stack[own->depth++];
    memset(range, 0, sizeof *range);
    range->domain = domain;
    return range;
}

static int level(void)
{
    return ranges ? ranges->depth + ranges->beyond - 1 : -1;
}

static int domain_push(const void *domain, const struct attributes *event)
{
    struct range *range = push(domain);
    if (range) {
        copy_message(range->text, event);
        note_begin(range);
    }
    return level();
}

static int push_ex(const struct attributes *event)
{
    return domain_push(NULL, event);
}

static int push_a(const char *name)
{
    struct range *range = push(NULL);
    if (range) {
        copy_text(range->text, name);
        note_begin(range);
    }
    return level();
}

static int push_w(const wchar_t *name)
{
    struct range *range = push(NULL);
    if (range) {
        copy_wide(range->text, name);
        note_begin(range);
    }
    return level();
}

/* Ends the last range of a domain: those of several domains may overlap. */
static int domain_pop(const void *domain)
{
    int found = level();
    if (ranges && ranges->beyond) {
        ranges->beyond--;
        return found;
    }
    for (int at = ranges ? ranges->depth - 1 : -1; at >= 0; at--)
        if (ranges->stack[at].domain == domain) {
            note_end(ranges->stack[at].named, ranges->stack[at].file, ranges->stack[at].began_ns);
            memmove(&ranges->stack[at], &ranges->stack[at + 1], sizeof(struct range) * (size_t)(ranges->depth - at - 1));
            ranges->depth--;
            return found;
        }
    return -1;
}

static int pop(void)
{
    return domain_pop(NULL);
}

static uint64_t new_id(uint64_t number)
{
    return (__atomic_add_fetch(&started_count, 1, __ATOMIC_RELAXED) << NUMBER_BITS) | number;
}

/* The id of a new range with the name of ``range``. */
static uint64_t start(struct range *range)
{
    note_begin(range);
    for (uint64_t number = 0; number < STARTED; number++) {
        uint64_t expected = UNUSED;
        if (ss_load(started[number].state) != UNUSED ||
            !__atomic_compare_exchange_n(&started[number].state, &expected, CHANGING, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        for (size_t at = 0; at < sizeof started->text / sizeof *started->text; at++) {
            uint64_t word;
            memcpy(&word, range->text + at * sizeof word, sizeof word);
            ss_store(started[number].text[at], word);
        }
        started[number].named = range->named;
        started[number].file = range->file;
        ss_store(started[number].start_ns, range->named ? range->began_ns : ss_clock());
        uint64_t id = new_id(number);
        ss_store_release(started[number].state, id);
        return id;
    }
    return new_id(NOT_KEPT);
}

static uint64_t domain_start(const void *domain, const struct attributes *event)
{
    struct range range = {.domain = domain};
    copy_message(range.text, event);
    return start(&range);
}

static uint64_t start_ex(const struct attributes *event)
{
    return domain_start(NULL, event);
}

static uint64_t start_a(const char *name)
{
    struct range range = {0};
    copy_text(range.text, name);
    return start(&range);
}

static uint64_t start_w(const wchar_t *name)
{
    struct range range = {0};
    copy_wide(range.text, name);
    return start(&range);
}

/* Ends a range, which another thread may have started; an id of no range that is kept changes nothing. */
static void end(uint64_t id)
{
    uint64_t number = id & ((1 << NUMBER_BITS) - 1);
    if (number >= STARTED || !(id >> NUMBER_BITS))
        return;
    struct started_range *of = &started[number];
    if (!__atomic_compare_exchange_n(&of->state, &id, CHANGING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    note_end(of->named, of->file, ss_load(of->start_ns));
    ss_store_release(of->state, UNUSED);
}

static void domain_end(const void *domain, uint64_t id)
{
    (void)domain;
    end(id);
}

/* The name of the last of the started ranges that began by ``since`` and have not ended; empty without one. */
static void copy_started(char *text, size_t size, uint64_t since)
{
    uint64_t last = 0;
    memset(text, 0, size);
    for (size_t number = 0; number < STARTED; number++) {
        uint64_t id = ss_load_acquire(started[number].state);
        if (id <= CHANGING || id < last || ss_load(started[number].start_ns) > since)
            continue;
        uint64_t words[sizeof started->text / sizeof *started->text];
        for (size_t at = 0; at < sizeof words / sizeof *words; at++)
            words[at] = ss_load_acquire(started[number].text[at]);
        /* It may have ended meanwhile, and another one have its place. */
        if (ss_load(started[number].state) == id && size == sizeof words) {
            memcpy(text, words, sizeof words);
            last = id;
        }
    }
}

/* Handles of strings and domains are kept for the life of the process, as NVTX has them. */
static const void *register_a(const void *domain, const char *name)
{
    struct range *range = calloc(1, sizeof *range);
    (void)domain;
    if (range)
        copy_text(range->text, name);
    return range;
}

static const void *register_w(const void *domain, const wchar_t *name)
{
    struct range *range = calloc(1, sizeof *range);
    (void)domain;
    if (range)
        copy_wide(range->text, name);
    return range;
}

static const void *create_domain(const void *name)
{
    (void)name;
    return (const void *)(uintptr_t)__atomic_add_fetch(&domains, 1, __ATOMIC_RELAXED);
}

static void attach(nvtx_function **functions, unsigned count, unsigned number, nvtx_function function)
{
    if (number < count && functions[number])
        *functions[number] = function;
}

SS_SHOWN int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t number))
{
    const struct callback_table *table = get_table(CALLBACKS);
    nvtx_function **functions = NULL;
    unsigned count = 0;
    pthread_once(&once, prepare);
    if (!usable || !table || table->size < sizeof *table || !table->get_functions(CORE, &functions, &count))
        return 0;
    attach(functions, count, START_EX, (nvtx_function)start_ex);
    attach(functions, count, START_A, (nvtx_function)start_a);
    attach(functions, count, START_W, (nvtx_function)start_w);
    attach(functions, count, END, (nvtx_function)end);
    attach(functions, count, PUSH_EX, (nvtx_function)push_ex);
    attach(functions, count, PUSH_A, (nvtx_function)push_a);
    attach(functions, count, PUSH_W, (nvtx_function)push_w);
    attach(functions, count, POP, (nvtx_function)pop);
    if (table->get_functions(CORE2, &functions, &count)) {
        attach(functions, count, DOMAIN_START, (nvtx_function)domain_start);
        attach(functions, count, DOMAIN_END, (nvtx_function)domain_end);
        attach(functions, count, DOMAIN_PUSH, (nvtx_function)domain_push);
        attach(functions, count, DOMAIN_POP, (nvtx_function)domain_pop);
        attach(functions, count, REGISTER_A, (nvtx_function)register_a);
        attach(functions, count, REGISTER_W, (nvtx_function)register_w);
        attach(functions, count, CREATE_A, (nvtx_function)create_domain);
        attach(functions, count, CREATE_W, (nvtx_function)create_domain);
    }
    return 1;
}

/* The name of the innermost range that the calling thread has pushed, else of the last one that was started before the
 * call at ``since``; empty without one. */
void ss_copy_range(char *text, size_t size, uint64_t since)
{
    if (ranges && ranges->depth)
        memcpy(text, ranges->stack[ranges->depth - 1].text, size);
    else
        copy_started(text, size, since);
}
