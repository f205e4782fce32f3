/* Frames of Python 3.11 to 3.15: read from the interpreter's structures, from 3.13 on by the table of offsets that it has
 * for debuggers at the begin of _PyRuntime.
 *
 * A thread reads its own frames, which nobody else changes, and what they hold: code, and its names and lines. A thread of
 * the library reads those of others, which may change meanwhile. Memory is read by the kernel (process_vm_readv, where it
 * is refused through a pipe), so that an address that cannot be read, or a structure that is not as expected, ends the text
 * and not the program.
 */
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "own_memory.h"
#include "python_frames.h"
#include "state.h"

enum {
    /* MOST_FRAMES: largest number of frames in the text of a stack. MOST_CHARACTERS: largest number of a string's
     * characters in this text. Both are as in the text that Python itself writes. */
    MOST_FRAMES = 100,
    MOST_CHARACTERS = 500,
    /* Largest number of frames that are visited. Frames of calls from C to Python are not written; each is followed by
     * another frame. */
    MOST_STEPS = 2 * MOST_FRAMES,
    /* Largest number of bytes of a table of lines that are searched. */
    MOST_OF_TABLE = 1 << 18,
    /* Smallest size (bytes) of a page. A read within one page succeeds as a whole or not at all. */
    PAGE = 4096,
    /* WINDOW: largest number of bytes of a window, which are read at a time. MOST_WINDOWS: largest number of windows
     * that one system call fills. */
    WINDOW = 256,
    MOST_WINDOWS = 5,
};

/* Positions of words in Python's table of offsets, a line for each section. VERSION and FREE_THREADED count from the
 * begin of the table, the others from the begin of their section. The first word of a section is the size of its
 * structure. */
enum { VERSION = 1, FREE_THREADED = 2 };
enum { THREAD_FRAME = 4 };
enum { FRAME_PREVIOUS = 1, FRAME_CODE, FRAME_INSTRUCTION, FRAME_VARIABLES, FRAME_OWNER, FRAME_STACK_END };
enum { CODE_FILE = 1, CODE_NAME, CODE_TABLE = 4, CODE_FIRST_LINE, CODE_INSTRUCTIONS = 9 };
enum { OBJECT_TYPE = 1 };
enum { BYTES_SIZE = 1, BYTES_TEXT };
enum { STRING_STATE = 1, STRING_LENGTH, STRING_ASCII_BYTES };

/* Where the sections begin, by the upper half of the version, and where the section on a thread has its number. From 3.14
 * on, a frame says where its stack ends, and an RLock has a mutex. */
static const struct known_table {
    uint32_t version;
    uint8_t thread, frame, code, object, bytes, string, ident, has_mutex;
} KNOWN_TABLES[] = {
    {0x030d, 19, 28, 34, 44, 64, 67, 5, 0},
    {0x030e, 22, 31, 39, 50, 74, 77, 5, 1},
    {0x030f, 22, 39, 47, 58, 86, 89, 8, 1},
};

/* Bits in the state of a string (PyASCIIObject.state). */
enum { STRING_KIND_SHIFT = 2, STRING_KIND_MASK = 7, STRING_COMPACT = 1 << 5, STRING_ASCII = 1 << 6 };
/* Smallest owner number of a frame that stands for a call from C to Python. Such a frame has no code of the program. */
enum { OWNER_C = 3 };
/* Low bits of a reference to an object that say how the reference is counted; they are no part of the address. */
static const uint64_t REFERENCE_TAGS = 3;
/* Codes of the entries of a table of lines. LINE_PLUS_0 to LINE_PLUS_2: the line of the previous entry, plus 0 to 2.
 * LINE_WITHOUT_COLUMNS, LINE_LONG: the difference to the line of the previous entry follows. LINE_NONE: no line. All
 * smaller codes: the line of the previous entry. */
enum { LINE_PLUS_0 = 10, LINE_PLUS_2 = 12, LINE_WITHOUT_COLUMNS, LINE_LONG, LINE_NONE };

/* A part of the process's memory as it was last read. */
struct window {
    uint64_t address;
    uint32_t size;
    unsigned char bytes[WINDOW];
};

struct reader {
    const struct ss_python_layout *layout;
    struct ss_text_pipe *pipe;
    int failed;
};

struct text {
    char *bytes;
    uint32_t size, used;
    int is_full;
};

/* A frame that has code. */
struct frame {
    uint64_t code, previous, instruction;
    int is_of_c;
};

static uint64_t word_of(const unsigned char *table, uint32_t number)
{
    uint64_t word;
    memcpy(&word, table + number * sizeof word, sizeof word);
    return word;
}

/* The layout of Python 3.11 and 3.12, which have no table: that of all their releases, by their headers; 0 if it is known.
 * A thread has its innermost frame in another structure there. */
int ss_learn_old_python(struct ss_python_layout *layout, const char *version)
{
    static const struct ss_python_layout of_both = {
        .thread_cframe = 56, .instruction = 56, .file = 112, .name = 120, .table = 136, .type = 8, .bytes_size = 16,
        .bytes_text = 32, .string_state = 32, .string_length = 16, .variables = 72,
    };
    int is_11 = !strncmp(version, "3.11.", 5);
    if (!is_11 && strncmp(version, "3.12.", 5))
        return -1;
    struct ss_python_layout found = of_both;
    found.cframe_frame = is_11 ? 8 : 0;
    found.executable = is_11 ? 32 : 0;
    found.previous = is_11 ? 48 : 8;
    found.owner = is_11 ? 69 : 70;
    found.thread_ident = is_11 ? 152 : 136;
    found.first_line = is_11 ? 72 : 68;
    found.instructions = is_11 ? 184 : 192;
    found.ascii_bytes = is_11 ? 48 : 40;
    found.other_bytes = is_11 ? 72 : 56;
    found.code_type = layout->code_type;
    found.string_type = layout->string_type;
    found.bytes_type = layout->bytes_type;
    found.function_type = layout->function_type;
    *layout = found;
    return 0;
}

static const struct known_table *table_of(uint64_t version)
{
    /* Release level of Python's release candidates; structures of earlier releases may differ. */
    enum { FIRST_CANDIDATE = 0xc0 };
    for (size_t at = 0; at < sizeof KNOWN_TABLES / sizeof *KNOWN_TABLES; at++)
        if (version >> 16 == KNOWN_TABLES[at].version && (version & 0xf0) >= FIRST_CANDIDATE)
            return &KNOWN_TABLES[at];
    return NULL;
}

/* Whether the offsets are possible, and what does not differ between these versions is as it is in them: otherwise the
 * table is another one. */
static int is_plausible(const unsigned char *table, const struct known_table *known, const struct ss_python_layout *of)
{
    /* Largest plausible size or offset (bytes) in a structure. */
    enum { LARGEST = 1 << 16 };
    uint64_t frame = word_of(table, known->frame), code = word_of(table, known->code);
    if (word_of(table, known->object) != 16 || of->type != 8 || of->bytes_size != 16 || of->bytes_text != 32)
        return 0;
    if (of->string_length != 16 || of->string_state != 32 || of->ascii_bytes != 40 || of->other_bytes != 56)
        return 0;
    if (of->thread_frame >= LARGEST || of->thread_frame >= word_of(table, known->thread) ||
        of->thread_ident >= word_of(table, known->thread))
        return 0;
    if (frame > LARGEST || of->previous >= frame || of->executable >= frame || of->instruction >= frame ||
        of->owner >= frame || of->variables > frame || of->stack_end >= frame)
        return 0;
    return code <= LARGEST && of->file < code && of->name < code && of->table < code && of->first_line < code &&
           of->instructions <= code;
}

/* Learns the layout of the interpreter's structures from ``runtime``, its _PyRuntime; one of enum SS_PYTHON. */
int ss_learn_python(struct ss_python_layout *layout, const void *runtime)
{
    static const char cookie[] = "xdebugpy";
    const unsigned char *table = runtime;
    if (memcmp(table, cookie, sizeof cookie - 1))
        return SS_PYTHON_UNKNOWN;
    const struct known_table *known = table_of(word_of(table, VERSION));
    if (!known)
        return SS_PYTHON_UNKNOWN;
    if (word_of(table, FREE_THREADED))
        return SS_PYTHON_FREE_THREADED;
    layout->thread_frame = word_of(table, known->thread + THREAD_FRAME);
    layout->previous = word_of(table, known->frame + FRAME_PREVIOUS);
    layout->executable = word_of(table, known->frame + FRAME_CODE);
    layout->instruction = word_of(table, known->frame + FRAME_INSTRUCTION);
    layout->owner = word_of(table, known->frame + FRAME_OWNER);
    layout->variables = word_of(table, known->frame + FRAME_VARIABLES);
    layout->stack_end = known->has_mutex ? word_of(table, known->frame + FRAME_STACK_END) : 0;
    layout->thread_ident = word_of(table, known->thread + known->ident);
    layout->has_mutex = known->has_mutex;
    layout->file = word_of(table, known->code + CODE_FILE);
    layout->name = word_of(table, known->code + CODE_NAME);
    layout->table = word_of(table, known->code + CODE_TABLE);
    layout->first_line = word_of(table, known->code + CODE_FIRST_LINE);
    layout->instructions = word_of(table, known->code + CODE_INSTRUCTIONS);
    layout->type = word_of(table, known->object + OBJECT_TYPE);
    layout->bytes_size = word_of(table, known->bytes + BYTES_SIZE);
    layout->bytes_text = word_of(table, known->bytes + BYTES_TEXT);
    layout->string_state = word_of(table, known->string + STRING_STATE);
    layout->string_length = word_of(table, known->string + STRING_LENGTH);
    layout->ascii_bytes = word_of(table, known->string + STRING_ASCII_BYTES);
    /* The whole structure ends with a pointer, which compact strings do not have. */
    layout->other_bytes = word_of(table, known->string) - sizeof(void *);
    return is_plausible(table, known, layout) ? SS_PYTHON_KNOWN : SS_PYTHON_UNKNOWN;
}

/* Moves windows to their addresses, all at once since a call of the system takes longer than the copying. Those that
 * cannot be read are empty. */
static void fill(const struct reader *reader, struct window *const *windows, int count)
{
    struct iovec from[MOST_WINDOWS] = {{NULL, 0}}, to[MOST_WINDOWS] = {{NULL, 0}};
    for (int at = 0; at < count; at++) {
        uint64_t left = PAGE - windows[at]->address % PAGE;
        windows[at]->size = left < WINDOW ? (uint32_t)left : WINDOW;
        from[at] = (struct iovec){(void *)(uintptr_t)windows[at]->address, windows[at]->size};
        to[at] = (struct iovec){windows[at]->bytes, windows[at]->size};
    }
    long got = ss_read_memory(reader->pipe, from, to, count);
    for (int at = 0; at < count; at++) {
        if (got < (long)windows[at]->size)
            windows[at]->size = 0;
        got -= windows[at]->size;
    }
}

static int has(const struct window *window, uint64_t address, uint64_t size)
{
    return address >= window->address && address - window->address + size <= window->size;
}

/* A byte of the memory; 0 if it cannot be read. */
static unsigned char byte_at(struct reader *reader, struct window *window, uint64_t address)
{
    if (!has(window, address, 1) && !reader->failed) {
        window->address = address;
        fill(reader, &window, 1);
        reader->failed = !window->size;
    }
    return reader->failed ? 0 : window->bytes[address - window->address];
}

/* A number of ``size`` bytes. */
static uint64_t number_at(struct reader *reader, struct window *window, uint64_t address, uint32_t size)
{
    uint64_t number = 0;
    for (uint32_t at = 0; at < size; at++)
        number |= (uint64_t)byte_at(reader, window, address + at) << 8 * at;
    return number;
}

static uint64_t pointer_at(struct reader *reader, struct window *window, uint64_t address)
{
    uint64_t pointer;
    if (!has(window, address, sizeof pointer))
        return number_at(reader, window, address, sizeof pointer);
    memcpy(&pointer, window->bytes + (address - window->address), sizeof pointer);
    return pointer;
}

static int has_type(struct reader *reader, struct window *window, uint64_t object, uint64_t type)
{
    return pointer_at(reader, window, object + reader->layout->type) == type && !reader->failed;
}

static void put(struct text *text, char character)
{
    if (text->used < text->size)
        text->bytes[text->used++] = character;
    else
        text->is_full = 1;
}

static void put_text(struct text *text, const char *more)
{
    for (; *more; more++)
        put(text, *more);
}

static void put_number(struct text *text, uint64_t number)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        put(text, digits[--count]);
}

static void put_character(struct text *text, uint64_t character)
{
    if (character >= ' ' && character <= '~') {
        put(text, (char)character);
        return;
    }
    int digits = character < 0x100 ? 2 : character < 0x10000 ? 4 : 8;
    put(text, '\\');
    put(text, digits == 2 ? 'x' : digits == 4 ? 'u' : 'U');
    while (digits--)
        put(text, "0123456789abcdef"[character >> 4 * digits & 15]);
}

/* Writes a string between ``quote`` and another one, as Python does; ??? for what is none. */
static void put_string(struct reader *reader, struct window *window, uint64_t string, const char *quote,
                       struct text *text)
{
    const struct ss_python_layout *layout = reader->layout;
    int is_string = string && has_type(reader, window, string, layout->string_type);
    uint64_t state = is_string ? number_at(reader, window, string + layout->string_state, 4) : 0;
    uint64_t length = is_string ? pointer_at(reader, window, string + layout->string_length) : 0;
    uint32_t bytes = state >> STRING_KIND_SHIFT & STRING_KIND_MASK;
    if (!(state & STRING_COMPACT) || (bytes != 1 && bytes != 2 && bytes != 4)) {
        put_text(text, "???");
        return;
    }
    uint64_t at = string + (state & STRING_ASCII ? layout->ascii_bytes : layout->other_bytes);
    uint64_t shown = length < MOST_CHARACTERS ? length : MOST_CHARACTERS;
    put_text(text, quote);
    for (uint64_t number = 0; number < shown && !reader->failed && !text->is_full; number++, at += bytes)
        put_character(text, number_at(reader, window, at, bytes));
    put_text(text, shown < length ? "..." : "");
    put_text(text, quote);
}

/* A number with a sign in the lowest bit, six bits in each byte, the lowest first. */
static int64_t signed_number(struct reader *reader, struct window *window, uint64_t *at)
{
    /* BITS: number of a byte's low bits that belong to the number. MASK: these bits. MORE: bit of a byte that another
     * byte follows. HIGHEST_SHIFT: shift (bits) of the last byte that is read. */
    enum { BITS = 6, MASK = 63, MORE = 64, HIGHEST_SHIFT = 30 };
    uint64_t number = 0, byte;
    uint32_t shift = 0;
    do {
        byte = byte_at(reader, window, (*at)++);
        number |= (byte & MASK) << shift;
        shift += BITS;
    } while (byte & MORE && shift <= HIGHEST_SHIFT);
    return number & 1 ? -(int64_t)(number >> 1) : (int64_t)(number >> 1);
}

/* The line of an instruction by its number, 0 if it has none. */
static int64_t line_in_table(struct reader *reader, struct window *window, uint64_t table, int64_t line,
                             uint64_t instruction)
{
    /* Parts of a byte of an entry. BEGINS_ENTRY: mark of the first byte. COUNT_MASK: bits with the number of the
     * entry's instructions less 1. FORM_SHIFT, FORM_MASK: place of the entry's code. */
    enum { BEGINS_ENTRY = 0x80, COUNT_MASK = 7, FORM_SHIFT = 3, FORM_MASK = 15 };
    uint64_t size = pointer_at(reader, window, table + reader->layout->bytes_size);
    uint64_t at = table + reader->layout->bytes_text;
    uint64_t end = at + (size < MOST_OF_TABLE ? size : MOST_OF_TABLE), instructions = 0;
    while (at < end && !reader->failed) {
        unsigned char first = byte_at(reader, window, at++);
        int form = first >> FORM_SHIFT & FORM_MASK;
        if (form == LINE_LONG || form == LINE_WITHOUT_COLUMNS)
            line += signed_number(reader, window, &at);
        else if (form >= LINE_PLUS_0 && form <= LINE_PLUS_2)
            line += form - LINE_PLUS_0;
        instructions += (first & COUNT_MASK) + 1u;
        if (instruction < instructions)
            return form == LINE_NONE ? 0 : line;
        while (at < end && !(byte_at(reader, window, at) & BEGINS_ENTRY) && !reader->failed)
            at++;
    }
    return 0;
}

/* Reads the frame at ``address``. */
static struct frame frame_at(struct reader *reader, struct window *window, uint64_t address)
{
    const struct ss_python_layout *layout = reader->layout;
    struct frame frame = {
        .code = pointer_at(reader, window, address + layout->executable) & ~REFERENCE_TAGS,
        .previous = pointer_at(reader, window, address + layout->previous),
        .instruction = pointer_at(reader, window, address + layout->instruction),
        .is_of_c = byte_at(reader, window, address + layout->owner) >= OWNER_C,
    };
    return frame;
}

/* What is read of the next two frames: code of the one, and the other itself. */
struct ahead {
    struct window code, frame;
};

/* Fills windows, and those of what is read ahead. */
static void fill_with(const struct reader *reader, struct window *const *windows, int count, struct ahead *ahead)
{
    struct window *all[MOST_WINDOWS];
    for (int at = 0; at < count; at++)
        all[at] = windows[at];
    ahead->code.size = ahead->frame.size = 0;
    if (ahead->code.address)
        all[count++] = &ahead->code;
    if (ahead->frame.address)
        all[count++] = &ahead->frame;
    if (count)
        fill(reader, all, count);
}

/* Writes a line for code that is executed at ``instruction``, and reads ahead. */
static void put_frame(struct reader *reader, struct window *code_window, const struct frame *frame, struct ahead *ahead,
                      struct text *text)
{
    const struct ss_python_layout *layout = reader->layout;
    struct window file, name, table;
    uint64_t code = frame->code, begin = code + layout->instructions;
    file.address = pointer_at(reader, code_window, code + layout->file);
    name.address = pointer_at(reader, code_window, code + layout->name);
    table.address = pointer_at(reader, code_window, code + layout->table);
    int64_t line = (int32_t)number_at(reader, code_window, code + layout->first_line, 4);
    /* Of the interpreter's own: it checks what __init__ returned. */
    if (reader->failed || (!line && file.address == name.address)) {
        fill_with(reader, NULL, 0, ahead);
        return;
    }
    uint64_t file_object = file.address, name_object = name.address, table_object = table.address;
    fill_with(reader, (struct window *[]){&file, &name, &table}, 3, ahead);
    put_text(text, "  File ");
    put_string(reader, &file, file_object, "\"", text);
    put_text(text, ", line ");
    /* A frame that has not begun is at the line of its function. */
    if (frame->instruction >= begin)
        line = has_type(reader, &table, table_object, layout->bytes_type)
                   ? line_in_table(reader, &table, table_object, line, (frame->instruction - begin) / 2)
                   : 0;
    if (line > 0)
        put_number(text, (uint64_t)line);
    else
        put_text(text, "???");
    put_text(text, " in ");
    put_string(reader, &name, name_object, "", text);
    put(text, '\n');
}

/* The innermost frame of a thread. */
static uint64_t first_frame(struct reader *reader, struct window *window, uint64_t thread)
{
    const struct ss_python_layout *layout = reader->layout;
    if (!layout->thread_cframe)
        return pointer_at(reader, window, thread + layout->thread_frame);
    uint64_t cframe = pointer_at(reader, window, thread + layout->thread_cframe);
    return cframe ? pointer_at(reader, window, cframe + layout->cframe_frame) : 0;
}

/* Writes the frames of a thread as Python 3.12 would, and returns the size of the text. ``thread`` is Python's state of the
 * thread, ``pipe`` is for ss_read_memory. SS_STACK_PYTHON_CUT is set in ``flags`` if there are more frames. */
uint32_t ss_python_text(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                        char *bytes, uint32_t size, uint32_t *flags)
{
    struct reader reader = {.layout = layout, .pipe = pipe};
    struct text text = {.bytes = bytes, .size = size};
    struct window window = {.size = 0}, code;
    struct ahead ahead;
    uint64_t address = first_frame(&reader, &window, (uint64_t)(uintptr_t)thread);
    struct frame frame = {0};
    if (address && !reader.failed) {
        frame = frame_at(&reader, &window, address);
        ahead = (struct ahead){.code.address = frame.code, .frame.address = frame.previous};
        fill_with(&reader, NULL, 0, &ahead);
    }
    uint32_t whole = 0, frames = 0;
    for (int steps = 0; address && !reader.failed; steps++) {
        if (text.is_full || frames == MOST_FRAMES || steps == MOST_STEPS)
            break;
        /* Calls of the system take most of the time: what the next frame needs is read with what this one does. */
        code = ahead.code;
        address = frame.previous;
        struct frame next = address ? frame_at(&reader, &ahead.frame, address) : (struct frame){0};
        int is_last = reader.failed;
        reader.failed = 0;
        ahead.code.address = is_last ? 0 : next.code;
        ahead.frame.address = is_last ? 0 : next.previous;
        if (frame.is_of_c || !frame.code || !has_type(&reader, &code, frame.code, layout->code_type))
            fill_with(&reader, NULL, 0, &ahead);
        else
            put_frame(&reader, &code, &frame, &ahead, &text);
        if (!reader.failed && !text.is_full && text.used > whole) {
            whole = text.used;
            frames++;
        }
        reader.failed |= is_last;
        frame = next;
    }
    if (address || text.is_full || reader.failed)
        *flags |= SS_STACK_PYTHON_CUT;
    return whole;
}

/* Python's global lock (struct _gil_runtime_state, 3.11 to 3.15): the switch interval (us), the state of the thread that has
 * it or had it last, whether it is held, and the number of switches. */
struct python_lock {
    uint64_t interval, holder;
    int32_t is_held;
    uint64_t switches;
};

static int read_at(struct ss_text_pipe *pipe, uint64_t address, void *bytes, size_t size)
{
    struct iovec from = {(void *)(uintptr_t)address, size}, to = {bytes, size};
    return ss_read_memory(pipe, &from, &to, 1) == (long)size;
}

/* The interpreter of the thread with the state ``state``; 0 if that cannot be read. */
static uint64_t interpreter_of(struct ss_text_pipe *pipe, uint64_t state)
{
    /* Offset (bytes) of the interpreter's address in the state of a thread, 3.11 to 3.15. */
    enum { INTERPRETER = 16 };
    uint64_t interpreter;
    return read_at(pipe, state + INTERPRETER, &interpreter, sizeof interpreter) ? interpreter : 0;
}

static int may_be_lock(const struct python_lock *lock)
{
    /* Bounds of the switch interval (us), which is 5000 unless the program sets it. */
    enum { LEAST_INTERVAL = 100, MOST_INTERVAL = 10000000 };
    return lock->interval >= LEAST_INTERVAL && lock->interval <= MOST_INTERVAL && lock->holder &&
           lock->holder % sizeof(void *) == 0 && (lock->is_held == 0 || lock->is_held == 1) && lock->switches;
}

/* The address of Python's global lock within ``runtime``, its _PyRuntime of ``size`` bytes; 0 if it is not found. It is
 * known by its fields: its holder is a thread of the same interpreter as ``thread``, which is Python's state of one. */
uint64_t ss_find_python_lock(struct ss_text_pipe *pipe, uint64_t runtime, uint64_t size, const void *thread)
{
    enum { BYTES = 2048 };
    unsigned char bytes[BYTES];
    uint64_t interpreter = interpreter_of(pipe, (uint64_t)(uintptr_t)thread);
    for (uint64_t at = 0; interpreter && at < size; at += BYTES - sizeof(struct python_lock)) {
        size_t length = size - at < BYTES ? size - at : BYTES;
        if (!read_at(pipe, runtime + at, bytes, length))
            return 0;
        for (size_t place = 0; place + sizeof(struct python_lock) <= length; place += sizeof(void *)) {
            struct python_lock lock;
            memcpy(&lock, bytes + place, sizeof lock);
            if (may_be_lock(&lock) && interpreter_of(pipe, lock.holder) == interpreter)
                return runtime + at + place;
        }
    }
    return 0;
}

/* Python's state of the thread that has the lock; NULL if none has it. */
const void *ss_python_lock_holder(struct ss_text_pipe *pipe, uint64_t address)
{
    struct python_lock lock;
    int is_held = read_at(pipe, address, &lock, sizeof lock) && may_be_lock(&lock) && lock.is_held;
    return is_held ? (const void *)(uintptr_t)lock.holder : NULL;
}

/* The first words of an object. Of an RLock, the fields are the semaphore's address or the mutex, the owner and the count;
 * of a Lock, the first is the mutex from 3.14 on; until 3.13, the first is the semaphore's address, and the third has a flag
 * in its lowest byte; of a function of C, the second one is the object whose method it is. */
struct object {
    uint64_t references, type, fields[3];
};
enum { LOCK, RLOCK_OWNER, RLOCK_COUNT, LOCK_IS_HELD = RLOCK_COUNT };
enum { FUNCTION_SELF = 1 };
/* Largest number of objects that are read at a time. */
enum { AT_ONCE = 32 };

/* The address of the innermost frame of a thread that has code; 0 without one. */
static uint64_t innermost_frame(struct reader *reader, uint64_t thread, struct frame *frame)
{
    /* Largest number of frames that stand for calls from C in front of the frame. */
    enum { MOST_OF_C = 4 };
    struct window window = {.size = 0};
    uint64_t address = first_frame(reader, &window, thread);
    for (int tried = 0; address && tried < MOST_OF_C && !reader->failed; tried++) {
        *frame = frame_at(reader, &window, address);
        if (!frame->is_of_c && frame->code && !reader->failed)
            return address;
        address = frame->previous;
    }
    return 0;
}

/* The words with which the frame at ``address`` works: all for which it has room, or where the end is known the last ones,
 * with which it calls a function. How many there are. */
static uint32_t words_of_frame(const struct reader *reader, uint64_t address, const struct frame *frame, uint64_t *words,
                               uint32_t most)
{
    /* Largest number of words of a call: the function, the object whose method it is, and two arguments. */
    enum { OF_CALL = 4 };
    const struct ss_python_layout *layout = reader->layout;
    uint64_t begin = address + layout->variables, end;
    if (layout->stack_end) {
        if (!read_at(reader->pipe, address + layout->stack_end, &end, sizeof end) || end < begin)
            return 0;
        begin = end - begin > OF_CALL * sizeof *words ? end - OF_CALL * sizeof *words : begin;
    } else {
        /* The size of its stack, its first line, and the number of its variables, 3.11 to 3.13. */
        int32_t sizes[3];
        uint64_t code = frame->code + layout->first_line - sizeof *sizes;
        if (!read_at(reader->pipe, code, sizes, sizeof sizes) || sizes[0] < 0 || sizes[2] < 0)
            return 0;
        uint64_t room = (uint64_t)sizes[0] + (uint64_t)sizes[2];
        end = begin + (room < most ? room : most) * sizeof *words;
    }
    return read_at(reader->pipe, begin, words, end - begin) ? (uint32_t)((end - begin) / sizeof *words) : 0;
}

static int may_be_object(uint64_t address)
{
    /* LARGEST: end of the addresses of a program. */
    static const uint64_t LARGEST = UINT64_C(1) << 48;
    return address >= PAGE && address < LARGEST && address % sizeof(void *) == 0;
}

/* Whether threads wait for a semaphore. */
static int is_awaited(const struct reader *reader, uint64_t semaphore)
{
    /* The count of the semaphore, and the number of its waiters. */
    uint32_t state[2];
    return may_be_object(semaphore) && read_at(reader->pipe, semaphore, state, sizeof state) && !state[0] && state[1];
}

/* Returns 1 if a mutex is held and another thread waits for it. */
static int is_awaited_mutex(uint64_t mutex)
{
    /* HELD, AWAITED: bits of a mutex. */
    enum { HELD = 1, AWAITED = 2, MUTEX_MASK = 255 };
    return (mutex & MUTEX_MASK) == (HELD | AWAITED);
}

/* Whether an object may be an RLock that another thread than that with the number ``own`` has, and others wait for. */
static int may_be_rlock(const struct reader *reader, const struct object *object, uint64_t own)
{
    /* Largest number of times that a thread has a lock. */
    enum { MOST_COUNT = 1 << 20 };
    uint64_t lock = object->fields[LOCK], owner = object->fields[RLOCK_OWNER];
    if (!owner || owner == own || object->fields[RLOCK_COUNT] > MOST_COUNT)
        return 0;
    if (reader->layout->has_mutex)
        return is_awaited_mutex(lock);
    return object->fields[RLOCK_COUNT] && is_awaited(reader, lock);
}

/* Whether an object may be a Lock that is held and awaited. It does not say who has it. */
static int may_be_lock_object(const struct reader *reader, const struct object *object)
{
    enum { FLAG_MASK = 255 };
    if (reader->layout->has_mutex)
        return is_awaited_mutex(object->fields[LOCK]);
    return (object->fields[LOCK_IS_HELD] & FLAG_MASK) == 1 && is_awaited(reader, object->fields[LOCK]);
}

/* Whether the name of a type is ``name``, of so many bytes with the one behind it. */
static int is_type(const struct reader *reader, uint64_t type, const char *name, size_t size)
{
    /* NAME: offset (bytes) of the address of a type's name, 3.11 to 3.15. LONGEST: longest name that is compared. */
    enum { NAME = 24, LONGEST = 24 };
    char found[LONGEST];
    uint64_t address;
    return size <= LONGEST && read_at(reader->pipe, type + NAME, &address, sizeof address) &&
           read_at(reader->pipe, address, found, size) && !memcmp(found, name, size);
}

/* Whether an object is a lock for which a thread with the number ``own`` may wait; its owner, 0 where it does not say so. */
static int is_awaited_lock(const struct reader *reader, const struct object *object, uint64_t own, uint64_t *owner)
{
    static const char rlock[] = "_thread.RLock", lock[] = "_thread.lock";
    *owner = object->fields[RLOCK_OWNER];
    if (may_be_rlock(reader, object, own) && is_type(reader, object->type, rlock, sizeof rlock))
        return 1;
    *owner = 0;
    return may_be_lock_object(reader, object) && is_type(reader, object->type, lock, sizeof lock);
}

/* Reads the objects at the next addresses of ``words`` that may be some, from number ``at`` on, and moves that behind them;
 * how many they are. Calls of the system take most of the time. */
static uint32_t next_objects(const struct reader *reader, const uint64_t *words, uint32_t count, uint32_t *at,
                             struct object objects[AT_ONCE], uint64_t addresses[AT_ONCE])
{
    struct iovec from[AT_ONCE], to[AT_ONCE];
    uint32_t places[AT_ONCE], chosen = 0;
    for (; *at < count && chosen < AT_ONCE; (*at)++) {
        uint64_t address = words[*at] & ~REFERENCE_TAGS;
        if (!may_be_object(address))
            continue;
        places[chosen] = *at;
        addresses[chosen] = address;
        from[chosen] = (struct iovec){(void *)(uintptr_t)address, sizeof *objects};
        to[chosen] = (struct iovec){&objects[chosen], sizeof *objects};
        chosen++;
    }
    uint32_t got = chosen ? (uint32_t)((size_t)ss_read_memory(reader->pipe, from, to, (int)chosen) / sizeof *objects) : 0;
    /* What follows an address that cannot be read comes next. */
    if (got < chosen)
        *at = places[got] + 1;
    return got;
}

/* Finds the lock for which others wait and with which the innermost frame of a thread works; 0 if there is one alone.
 * Whether the thread waits for it is another matter. */
int ss_find_awaited_lock(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                         struct ss_awaited_lock *found)
{
    /* Largest number of words of a frame in which the lock, or a method of it, is searched. */
    enum { MOST_WORDS = 128 };
    struct reader reader = {.layout = layout, .pipe = pipe};
    struct frame frame;
    uint64_t state = (uint64_t)(uintptr_t)thread, address = innermost_frame(&reader, state, &frame), own, awaited = 0;
    uint64_t words[2 * MOST_WORDS];
    uint32_t count = address ? words_of_frame(&reader, address, &frame, words, MOST_WORDS) : 0;
    if (!count || !read_at(pipe, state + layout->thread_ident, &own, sizeof own))
        return -1;
    for (uint32_t at = 0; at < count;) {
        struct object objects[AT_ONCE];
        uint64_t addresses[AT_ONCE];
        uint32_t got = next_objects(&reader, words, count, &at, objects, addresses);
        for (uint32_t number = 0; number < got; number++) {
            const struct object *object = &objects[number];
            uint64_t owner;
            if (object->type == layout->function_type && count < 2 * MOST_WORDS)
                words[count++] = object->fields[FUNCTION_SELF];
            if (addresses[number] == awaited || !is_awaited_lock(&reader, object, own, &owner))
                continue;
            if (awaited)
                return -1;
            awaited = addresses[number];
            *found = (struct ss_awaited_lock){awaited, owner, layout->has_mutex ? 0 : object->fields[LOCK]};
        }
    }
    return awaited ? 0 : -1;
}

/* Python's state of the thread with a number, among those of the interpreter of ``thread``; NULL if there is none. */
const void *ss_python_thread(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                             uint64_t ident)
{
    /* Largest number of threads that are searched in each direction from ``thread``. */
    enum { MOST_THREADS = 256 };
    for (uint32_t direction = 0; direction < 2; direction++) {
        uint64_t links[2], number, state = (uint64_t)(uintptr_t)thread;
        for (int tried = 0; state && tried < MOST_THREADS; tried++) {
            if (!read_at(pipe, state, links, sizeof links) ||
                !read_at(pipe, state + layout->thread_ident, &number, sizeof number))
                break;
            if (number == ident)
                return (const void *)(uintptr_t)state;
            state = links[direction];
        }
    }
    return NULL;
}

/* A number in a table of exceptions: six bits in each byte, the highest first. */
static uint64_t table_number(struct reader *reader, struct window *window, uint64_t *at)
{
    /* BITS: number of a byte's low bits that belong to the number. MASK: these bits. MORE: bit of a byte that another
     * byte follows. MOST: largest number of bytes. */
    enum { BITS = 6, MASK = 63, MORE = 64, MOST = 6 };
    uint64_t number = 0, byte = MORE;
    for (int count = 0; count < MOST && byte & MORE; count++) {
        byte = byte_at(reader, window, (*at)++);
        number = number << BITS | (byte & MASK);
    }
    return number;
}

/* How many words of its stack a frame has for certain at an instruction: what a block in which it is leaves there, such as
 * the method by which a with statement ends. */
static uint64_t certain_depth(struct reader *reader, struct window *window, uint64_t table, uint64_t instruction)
{
    uint64_t at = table + reader->layout->bytes_text;
    uint64_t size = pointer_at(reader, window, table + reader->layout->bytes_size);
    uint64_t end = at + (size < MOST_OF_TABLE ? size : MOST_OF_TABLE);
    while (at < end && !reader->failed) {
        uint64_t begin = table_number(reader, window, &at), length = table_number(reader, window, &at);
        table_number(reader, window, &at);
        uint64_t depth = table_number(reader, window, &at) >> 1;
        if (instruction >= begin && instruction < begin + length)
            return reader->failed ? 0 : depth;
    }
    return 0;
}

/* Returns 1 if the object at ``address`` is the method __exit__ of a type that is written in C. */
static int is_exit(const struct reader *reader, uint64_t address, const struct object *object)
{
    /* Offset (bytes) of the address of the method's PyMethodDef. The first word of a PyMethodDef is the address of the
     * method's name. */
    enum { METHOD = 40 };
    static const char type[] = "method_descriptor", name[] = "__exit__";
    char found[sizeof name];
    uint64_t method, text;
    return is_type(reader, object->type, type, sizeof type) &&
           read_at(reader->pipe, address + METHOD, &method, sizeof method) &&
           read_at(reader->pipe, method, &text, sizeof text) && read_at(reader->pipe, text, found, sizeof found) &&
           !memcmp(found, name, sizeof name);
}

/* Returns 1 if the frame at ``address`` is inside a with statement of a lock. The stack of the frame then contains the
 * method __exit__. Up to 3.13, the method is bound to its lock. From 3.14 on, the next word of the stack is the lock. */
static int is_within(struct reader *reader, uint64_t address, const struct frame *frame, uint64_t lock)
{
    /* EXCEPTIONS: offset (bytes) of the address of the table of exceptions in code. MOST_DEPTH: largest number of words of
     * a stack that are searched. */
    enum { EXCEPTIONS = 40, MOST_DEPTH = 32 };
    const struct ss_python_layout *layout = reader->layout;
    struct window window = {.size = 0};
    uint64_t begin = frame->code + layout->instructions, table, words[MOST_DEPTH], depth;
    int32_t variables;
    if (frame->instruction < begin || !read_at(reader->pipe, frame->code + EXCEPTIONS, &table, sizeof table) ||
        !read_at(reader->pipe, frame->code + layout->first_line + sizeof variables, &variables, sizeof variables) ||
        variables < 0 || !has_type(reader, &window, table, layout->bytes_type))
        return 0;
    depth = certain_depth(reader, &window, table, (frame->instruction - begin) / 2);
    depth = depth < MOST_DEPTH ? depth : MOST_DEPTH;
    uint64_t stack = address + layout->variables + (uint64_t)variables * sizeof *words;
    if (!depth || !read_at(reader->pipe, stack, words, depth * sizeof *words))
        return 0;
    for (uint64_t at = 0; at < depth; at++) {
        struct object object;
        uint64_t method = words[at] & ~REFERENCE_TAGS;
        int is_followed = layout->has_mutex && at + 1 < depth && (words[at + 1] & ~REFERENCE_TAGS) == lock;
        if (!may_be_object(method) || !read_at(reader->pipe, method, &object, sizeof object))
            continue;
        if (is_followed ? is_exit(reader, method, &object)
                        : object.type == layout->function_type && object.fields[FUNCTION_SELF] == lock)
            return 1;
    }
    return 0;
}

/* Whether a thread is inside a with statement of a lock, and waits for no other one, as for a condition, for which it gives
 * the lock back. */
int ss_python_is_within(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread, uint64_t lock)
{
    /* Largest number of frames that are searched, the innermost first. */
    enum { MOST_SEARCHED = 32 };
    struct reader reader = {.layout = layout, .pipe = pipe};
    struct window window = {.size = 0};
    struct ss_awaited_lock other;
    uint64_t address = first_frame(&reader, &window, (uint64_t)(uintptr_t)thread);
    for (int number = 0; address && number < MOST_SEARCHED && !reader.failed; number++) {
        struct frame frame = frame_at(&reader, &window, address);
        if (!frame.is_of_c && frame.code && !reader.failed && is_within(&reader, address, &frame, lock))
            return ss_find_awaited_lock(layout, pipe, thread, &other) || other.object == lock;
        address = frame.previous;
    }
    return 0;
}

/* Python's state of the one thread that is inside a with statement of a lock, among those of the interpreter of
 * ``thread``; NULL if there is none, or more than one. */
const void *ss_python_thread_within(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                                    uint64_t lock)
{
    /* Largest number of threads that are searched in each direction from ``thread``. */
    enum { MOST_THREADS = 32 };
    uint64_t found = 0;
    for (uint32_t direction = 0; direction < 2; direction++) {
        uint64_t links[2], state = (uint64_t)(uintptr_t)thread;
        for (int tried = 0; tried < MOST_THREADS && read_at(pipe, state, links, sizeof links); tried++) {
            state = links[direction];
            if (!state)
                break;
            if (!ss_python_is_within(layout, pipe, (const void *)(uintptr_t)state, lock))
                continue;
            if (found)
                return NULL;
            found = state;
        }
    }
    return (const void *)(uintptr_t)found;
}
