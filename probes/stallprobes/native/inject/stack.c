/* Call stacks of slow calls and of samples, and one for the name of each thread, taken on the stack of the thread that
 * made the call, at its exit or its entry.
 *
 * Each different stack is written once: its native return addresses, and the text of its Python frames. Nothing here waits: the thread may
 * hold any lock of the program. The loader's lock on its list of libraries is taken for moments, as by an exception; no
 * thread holds it while it calls the driver.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "own_memory.h"
#include "python_frames.h"
#include "space.h"
#include "stack.h"
#include "state.h"
#include "threads.h"

enum {
    /* Largest number of stacks that are taken at a time; a thread that finds all places in use takes no stack. */
    SCRATCHES = 4,
    /* Largest number of places in the file that are searched for a stack. */
    MOST_SEARCHED = 64,
    /* NT_GNU_BUILD_ID. */
    NOTE_BUILD_ID = 3,
    /* Largest number of bytes of a library's notes that are read. A pipe, through which memory may be read, takes more
     * at once. */
    MOST_NOTES = 1024,
    /* Number of modules for which the file gets space at a time; a stack hardly adds more. */
    MODULES_AT_ONCE = 32,
    /* Largest time (ns) for stacks that a thread saves up. Time beyond this limit is lost. */
    MOST_CREDIT_NS = 1000000,
    /* Time (ns) that all threads of a process together may spend on the first stacks, so that a short program has
     * stacks too. */
    FIRST_CREDIT_NS = 2000000,
    /* Limits for the stack of a thread's name. NAME_NS: time (ns) that the thread must have saved up. NAME_TRIES:
     * largest number of tries. NAME_PAUSE_NS: pause (ns) between two tries. Reason for several tries: all places for a
     * stack may be in use, or Python may not know the thread yet. */
    NAME_NS = 100000,
    NAME_TRIES = 8,
    NAME_PAUSE_NS = 10000000,
    /* Largest number of searches for Python's global lock. A search reads the interpreter's state, less than 1 MB; it
     * fails while no thread has had the lock but those that Python does not know any more. */
    LOCK_TRIES = 16,
    /* UNASKED: number of looks at a place, after one that found no owner of a lock, that do not ask for one. Reason: the
     * question takes as long as four frames. OWNED: value that stands for a place at which one was found. */
    UNASKED = 15,
    OWNED = 255,
};

struct scratch {
    struct ss_text_pipe pipe;
    uint32_t used;
    uint32_t frames;
    uint32_t text_bytes;
    uint32_t flags;
    uint64_t addresses[SS_STACK_FRAMES];
    char text[sizeof ((struct ss_stack *)0)->text];
};

/* Bits of a shortcut that have the place of the stack. */
static const uint64_t PLACE_MASK = 2 * SS_STACKS - 1;
static struct scratch scratches[SCRATCHES];
/* The hashes of the stacks in the file, at their places; 0 where there is none. */
static uint64_t hashes[SS_STACKS];
/* By the hash of Python's text and the function: upper bits of the hash, and the place of the stack in the lower. */
static uint64_t shortcuts[SS_STACKS];
/* By the place of a stack: how many looks at threads there ask for no owner of a lock, OWNED where one was found. */
static uint8_t unasked[SS_STACKS];
static uint32_t adding_modules;
/* The modules for which the file has space; only the thread that adds modules uses it. */
static uint32_t module_room;
static int64_t first_credit_ns;
static char program_path[sizeof ((struct ss_module *)0)->path];

/* Whether stacks are wanted. The functions below stay, once they are known: a thread may be calling them. */
static uint32_t wanted;
static int (*backtrace)(int (*frame)(void *context, void *user), void *user);
static uintptr_t (*address_in)(void *context);
/* Python's: version, the state of the calling thread, whether the interpreter ends, and the layout of its structures. */
static struct {
    const char *(*version)(void);
    void *(*own_thread)(void);
    int (*is_finalizing)(void);
    struct ss_python_layout layout;
    int is_free_threaded;
    int usable;
    /* Its state, with the global lock, and where the lock is, 0 if that is not known. */
    uint64_t interpreter, interpreter_bytes, lock;
} python;

static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

static int remember_python(struct dl_phdr_info *library, size_t size, void *path)
{
    const char *name = library->dlpi_name ? strrchr(library->dlpi_name, '/') : NULL;
    (void)size;
    if (!name || strncmp(name, "/libpython3.", strlen("/libpython3.")))
        return 0;
    snprintf(path, PATH_MAX, "%s", library->dlpi_name);
    return 1;
}

static int find_layout(void *library, const char *version)
{
    struct ss_python_layout *layout = &python.layout;
    const void *runtime;
    find(library, "PyCode_Type", &layout->code_type);
    find(library, "PyUnicode_Type", &layout->string_type);
    find(library, "PyBytes_Type", &layout->bytes_type);
    find(library, "PyCFunction_Type", &layout->function_type);
    if (!layout->code_type || !layout->string_type || !layout->bytes_type)
        return 0;
    if (!ss_learn_old_python(layout, version)) {
        find(library, "_Py_IsFinalizing", &python.is_finalizing);
        return python.is_finalizing != NULL;
    }
    find(library, "Py_IsFinalizing", &python.is_finalizing);
    find(library, "_PyRuntime", &runtime);
    if (!python.is_finalizing || !runtime)
        return 0;
    int learned = ss_learn_python(layout, runtime);
    python.is_free_threaded = learned == SS_PYTHON_FREE_THREADED;
    return learned == SS_PYTHON_KNOWN;
}

static void find_interpreter(void *library)
{
    const void *runtime;
    const ElfW(Sym) *symbol = NULL;
    Dl_info found;
    find(library, "_PyRuntime", &runtime);
    if (runtime && dladdr1(runtime, &found, (void **)&symbol, RTLD_DL_SYMENT) && symbol && found.dli_saddr == runtime) {
        python.interpreter = (uint64_t)(uintptr_t)runtime;
        python.interpreter_bytes = symbol->st_size;
    }
}

static void find_python(void)
{
    char path[PATH_MAX] = "";
    void *library = RTLD_DEFAULT;
    find(library, "Py_GetVersion", &python.version);
    /* A program that embeds Python may keep its symbols to itself. */
    if (!python.version && dl_iterate_phdr(remember_python, path) && (library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)))
        find(library, "Py_GetVersion", &python.version);
    if (!python.version)
        return;
    find_interpreter(library);
    find(library, "PyGILState_GetThisThreadState", &python.own_thread);
    python.usable = python.own_thread && find_layout(library, python.version());
}

/* Before the first callback: functions are looked for here only, since that takes the loader's lock. */
void ss_prepare_stacks(void)
{
    ss_store(wanted, !ss_settings.no_stacks);
    if (ss_settings.no_stacks || program_path[0])
        return;
    ss_wait_to_load();
    ssize_t length = readlink("/proc/self/exe", program_path, sizeof program_path - 1);
    program_path[length > 0 ? length : 0] = 0;
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library) {
        find(library, "_Unwind_Backtrace", &backtrace);
        find(library, "_Unwind_GetIP", &address_in);
    }
    if (!address_in)
        backtrace = NULL;
    find_python();
    ss_end_loading();
}

/* For a new file, also in a ``forked`` process, in which other threads' work will never be finished. */
void ss_begin_stacks(int forked)
{
    memset(hashes, 0, sizeof hashes);
    memset(shortcuts, 0, sizeof shortcuts);
    memset(unasked, 0, sizeof unasked);
    for (size_t at = 0; at < SCRATCHES && forked; at++)
        ss_store(scratches[at].used, 0);
    if (forked)
        ss_store(adding_modules, 0);
    module_room = 0;
    ss_store(first_credit_ns, FIRST_CREDIT_NS);
    ss_header->flags |= (ss_settings.no_stacks ? SS_FLAG_NO_STACKS : 0) |
                        (ss_load(wanted) && backtrace ? SS_FLAG_NATIVE_STACKS : 0) |
                        (ss_can_read_python() ? SS_FLAG_PYTHON_STACKS : 0) |
                        (python.is_free_threaded ? SS_FLAG_FREE_THREADED : 0);
    ss_header->interpreter = python.interpreter;
    ss_header->interpreter_bytes = python.interpreter_bytes;
    if (python.version) {
        char text[sizeof ss_header->python] = "";
        const char *version = python.version();
        memcpy(text, version, strnlen(version, sizeof text - 1));
        text[strcspn(text, " ")] = 0;
        memcpy(ss_header->python, text, sizeof text);
    }
}

static int add_frame(void *context, void *user)
{
    /* _URC_NO_REASON and _URC_END_OF_STACK. */
    enum { CONTINUE = 0, END_OF_STACK = 5 };
    struct scratch *stack = user;
    uintptr_t address = address_in(context);
    if (!address)
        return END_OF_STACK;
    if (stack->frames == SS_STACK_FRAMES) {
        stack->flags |= SS_STACK_NATIVE_CUT;
        return END_OF_STACK;
    }
    /* Within the call, not behind it: the next line or function may be another. */
    stack->addresses[stack->frames++] = address - 1;
    return CONTINUE;
}

int ss_can_read_python(void)
{
    return ss_load(wanted) && python.usable;
}

/* Python's state of the calling thread; NULL if it has none, or its frames cannot be read. */
const void *ss_own_python(void)
{
    return ss_can_read_python() && !python.is_finalizing() ? python.own_thread() : NULL;
}

static void add_python_frames(struct scratch *stack, const void *thread)
{
    if (thread)
        stack->text_bytes = ss_python_text(&python.layout, &stack->pipe, thread, stack->text, sizeof stack->text,
                                           &stack->flags);
}

static uint64_t hash_of(uint64_t hash, const void *data, size_t size)
{
    uint64_t word = 0;
    for (size_t at = 0; at < size; at += sizeof word, word = 0) {
        memcpy(&word, (const char *)data + at, size - at < sizeof word ? size - at : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

static struct ss_module *module_at(uint32_t number)
{
    return (struct ss_module *)ss_at(SS_MODULES_AT) + number;
}

static int is_in_modules(uint64_t address)
{
    /* From the last one on: a library that is loaded may have the place of one that was. */
    for (uint32_t number = ss_load_acquire(ss_header->modules); number; number--)
        if (address >= module_at(number - 1)->start && address < module_at(number - 1)->end)
            return 1;
    return 0;
}

/* Whether a part of a library lies in what the loader has mapped to be read. */
static int is_readable(const struct dl_phdr_info *library, uint64_t at, uint64_t size)
{
    for (int number = 0; number < library->dlpi_phnum; number++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[number];
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_R && at >= segment->p_vaddr &&
            at - segment->p_vaddr <= segment->p_memsz && size <= segment->p_memsz - (at - segment->p_vaddr))
            return 1;
    }
    return 0;
}

/* Copies the notes of a library; how many bytes they are, 0 if they cannot be read. An edited file may name any place. */
static size_t copy_notes(const struct dl_phdr_info *library, const ElfW(Phdr) *segment, struct ss_text_pipe *pipe,
                         unsigned char notes[MOST_NOTES])
{
    size_t size = segment->p_memsz < MOST_NOTES ? segment->p_memsz : MOST_NOTES;
    if (!is_readable(library, segment->p_vaddr, size))
        return 0;
    struct iovec from = {(void *)(uintptr_t)(library->dlpi_addr + segment->p_vaddr), size}, to = {notes, size};
    return ss_read_memory(pipe, &from, &to, 1) == (long)size ? size : 0;
}

static void read_build_id(struct ss_module *module, const unsigned char *notes, size_t left)
{
    ElfW(Nhdr) note;
    while (left >= sizeof note) {
        memcpy(&note, notes, sizeof note);
        size_t name = ((size_t)note.n_namesz + 3) / 4 * 4, description = ((size_t)note.n_descsz + 3) / 4 * 4;
        if (name > left - sizeof note || description > left - sizeof note - name)
            return;
        const unsigned char *text = notes + sizeof note;
        if (note.n_type == NOTE_BUILD_ID && note.n_namesz == 4 && !memcmp(text, "GNU", 4)) {
            module->build_id_bytes = note.n_descsz < sizeof module->build_id ? note.n_descsz : sizeof module->build_id;
            memcpy(module->build_id, text + name, module->build_id_bytes);
            return;
        }
        notes = text + name + description;
        left -= sizeof note + name + description;
    }
}

/* Whether the module is this library, which has no file of its own in a program that was attached. */
static int is_own(const struct ss_module *module)
{
    uintptr_t address = (uintptr_t)&ss_prepare_stacks;
    return address >= module->start && address < module->end;
}

/* The file of a module. This library, and a libcupti that was sent to the process, have none: they have the names by which
 * their frames are known to be none of the program's. */
static const char *name_of(const struct ss_module *module, const struct dl_phdr_info *library)
{
    const char *name = library->dlpi_name;
    if (is_own(module))
        return "/" SS_LIBRARY_NAME;
    if (!name || !*name)
        return program_path;
    int was_sent = !strcmp(name, ss_settings.cupti) && !strncmp(name, "/proc/", strlen("/proc/"));
    return was_sent ? "/" SS_SENT_CUPTI_NAME : name;
}

static void describe_module(struct ss_module *module, const struct dl_phdr_info *library, struct ss_text_pipe *pipe)
{
    unsigned char notes[MOST_NOTES] __attribute__((aligned(8)));
    const char *name = name_of(module, library);
    size_t at = 0;
    memset(module->path, 0, sizeof module->path);
    if (*name != '/' && getcwd(module->path, sizeof module->path - 1)) {
        at = strlen(module->path);
        module->path[at++] = '/';
    }
    if (strlen(name) < sizeof module->path - at)
        strcpy(module->path + at, name);
    else
        module->path[0] = 0;
    module->base = library->dlpi_addr;
    module->build_id_bytes = 0;
    for (int number = 0; number < library->dlpi_phnum; number++)
        if (library->dlpi_phdr[number].p_type == PT_NOTE && !module->build_id_bytes)
            read_build_id(module, notes, copy_notes(library, &library->dlpi_phdr[number], pipe, notes));
}

static int add_module(struct dl_phdr_info *library, size_t size, void *user)
{
    struct scratch *stack = user;
    uint64_t start = UINT64_MAX, end = 0;
    (void)size;
    for (int number = 0; number < library->dlpi_phnum; number++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[number];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        uint64_t first = library->dlpi_addr + segment->p_vaddr;
        start = first < start ? first : start;
        end = first + segment->p_memsz > end ? first + segment->p_memsz : end;
    }
    for (uint32_t at = 0; at < stack->frames; at++) {
        if (stack->addresses[at] < start || stack->addresses[at] >= end || is_in_modules(stack->addresses[at]))
            continue;
        uint32_t number = ss_load(ss_header->modules);
        if (number >= module_room)
            return 1;
        struct ss_module *module = module_at(number);
        module->start = start;
        module->end = end;
        describe_module(module, library, &stack->pipe);
        ss_store_release(ss_header->modules, number + 1);
        break;
    }
    return 0;
}

/* The modules of the frames; those that another thread adds meanwhile are found with the next stack. */
static void add_modules(struct scratch *stack)
{
    uint32_t unknown = 0;
    for (uint32_t at = 0; at < stack->frames; at++)
        unknown |= !is_in_modules(stack->addresses[at]);
    if (!unknown || __atomic_exchange_n(&adding_modules, 1, __ATOMIC_ACQUIRE))
        return;
    uint32_t room = ss_load(ss_header->modules) + MODULES_AT_ONCE;
    room = room < SS_MODULES ? room : SS_MODULES;
    if (room > module_room) {
        uint64_t size = sizeof(struct ss_module), offset = SS_MODULES_AT + module_room * size;
        if (!ss_give_space(offset, (room - module_room) * size))
            module_room = room;
    }
    /* A callback must not wait for a fork. */
    if (!ss_begin_loading()) {
        dl_iterate_phdr(add_module, stack);
        ss_end_loading();
    }
    ss_store_release(adding_modules, 0);
}

/* The place of a stack, from 1; 0 if there is no space for it. */
static uint32_t place_of_stack(struct scratch *stack, uint64_t hash)
{
    hash = hash_of(hash, stack->addresses, stack->frames * sizeof *stack->addresses);
    hash = hash ? hash : 1;
    for (uint32_t tried = 0; tried < MOST_SEARCHED; tried++) {
        uint32_t number = (uint32_t)((hash + tried) % SS_STACKS);
        uint64_t known = ss_load(hashes[number]);
        uint64_t offset = SS_STACKS_AT + (uint64_t)number * SS_STACK_PITCH;
        /* Space first: whose hash is there has a place in the file. */
        if (!known && ss_give_space(offset, SS_STACK_PITCH))
            break;
        int is_free = !known;
        if (is_free && __atomic_compare_exchange_n(&hashes[number], &known, hash, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            struct ss_stack *written = ss_at(offset);
            written->frames = stack->frames;
            written->text_bytes = stack->text_bytes;
            written->flags = stack->flags;
            memcpy(written->addresses, stack->addresses, stack->frames * sizeof *stack->addresses);
            memcpy(written->text, stack->text, stack->text_bytes);
            add_modules(stack);
            ss_store_release(written->ready, 1);
            return number + 1;
        }
        if (is_free)
            ss_uncount_space(SS_STACK_PITCH);
        if (known == hash)
            return number + 1;
    }
    ss_count_lost(SS_LOST_NO_STACK, 1);
    return 0;
}

/* An empty stack; NULL if all are in use. */
static struct scratch *claim_scratch(void)
{
    for (size_t at = 0; at < SCRATCHES; at++)
        if (!__atomic_exchange_n(&scratches[at].used, 1, __ATOMIC_ACQUIRE)) {
            scratches[at].frames = scratches[at].text_bytes = scratches[at].flags = 0;
            return &scratches[at];
        }
    return NULL;
}

/* The place of the stack of another thread, by Python's state of it, with frames of Python alone; 0 without any. What is
 * read while the thread changes it may end early: that is no stack. */
uint32_t ss_stack_of_python(const void *thread)
{
    struct scratch *stack = python.is_finalizing() ? NULL : claim_scratch();
    if (!stack)
        return 0;
    add_python_frames(stack, thread);
    int whole = stack->text_bytes && !(stack->flags & SS_STACK_PYTHON_CUT);
    uint32_t place = whole ? place_of_stack(stack, hash_of(0, stack->text, stack->text_bytes)) : 0;
    ss_store_release(stack->used, 0);
    return place;
}

/* The place of the stack of the thread that has Python's global lock, if it is another one than ``thread``, Python's state
 * of one; else 0, also where the lock is not known. Called by one thread alone. */
uint32_t ss_stack_of_lock_holder(const void *thread)
{
    static uint32_t tried;
    struct scratch *scratch = python.interpreter ? claim_scratch() : NULL;
    if (!scratch)
        return 0;
    if (!python.lock && tried < LOCK_TRIES) {
        tried++;
        python.lock = ss_find_python_lock(&scratch->pipe, python.interpreter, python.interpreter_bytes, thread);
    }
    const void *holder = python.lock ? ss_python_lock_holder(&scratch->pipe, python.lock) : NULL;
    ss_store_release(scratch->used, 0);
    return holder && holder != thread ? ss_stack_of_python(holder) : 0;
}

/* Python's state of the thread that has a lock of the module threading, for which ``thread`` sleeps; NULL if it is not
 * known. */
static const void *owner_of(const struct ss_awaited_lock *lock, struct ss_text_pipe *pipe, const void *thread)
{
    /* A search of all frames takes long where there are many threads, and finds nothing where nobody is inside a with
     * statement, as in a wait for a queue: so searches use one of so many parts of the time for stacks, and the thread that
     * was found last is looked at first. */
    enum { SEARCH_PARTS = 16 };
    static const void *last;
    static uint64_t due;
    if (lock->owner)
        return ss_python_thread(&python.layout, pipe, thread, lock->owner);
    if (last && last != thread && ss_python_is_within(&python.layout, pipe, last, lock->object))
        return last;
    if (ss_clock() < due)
        return NULL;
    uint64_t before = ss_thread_cpu();
    const void *found = ss_python_thread_within(&python.layout, pipe, thread, lock->object);
    last = found ? found : last;
    due = ss_clock() + (ss_thread_cpu() - before) * SEARCH_PARTS * ss_stack_divisor();
    return found;
}

/* The place of the stack of the thread that has the lock of the module threading for which another one sleeps; 0 if it
 * sleeps for none, or that is not known. ``thread`` is Python's state of that one, ``number`` the system's of it, ``stack``
 * the place of its stack. Called by one thread alone. */
uint32_t ss_stack_of_lock_owner(const void *thread, uint32_t number, uint32_t stack)
{
    uint8_t *looks = &unasked[stack - 1];
    if (*looks && *looks != OWNED) {
        (*looks)--;
        return 0;
    }
    struct scratch *scratch = claim_scratch();
    struct ss_awaited_lock lock;
    uint64_t word;
    if (!scratch)
        return 0;
    /* Most frames work with no such lock, and then no file is opened. */
    int sleeps = !ss_find_awaited_lock(&python.layout, &scratch->pipe, thread, &lock) &&
                 !ss_find_awaited_word(number, &word) && (!lock.word || lock.word == word);
    const void *owner = sleeps ? owner_of(&lock, &scratch->pipe, thread) : NULL;
    ss_store_release(scratch->used, 0);
    *looks = owner ? OWNED : *looks == OWNED ? OWNED : UNASKED;
    return owner && owner != thread ? ss_stack_of_python(owner) : 0;
}

/* The place of the calling thread's stack, or 0; ``python_end`` is when its frames of Python were written. Without
 * ``native``, the stack has no others, unless they are known. */
static uint32_t take_stack(uint32_t api, int native, uint64_t *python_end)
{
    struct scratch *stack = claim_scratch();
    if (!stack)
        return 0;
    int error = errno;
    int cancel;
    /* A thread must not end inside the driver's call because a cancellation was pending. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    add_python_frames(stack, ss_own_python());
    *python_end = ss_thread_cpu();
    /* The native frames of a call of one function at one line are nearly always the same, and take longer to find. */
    uint64_t hash = hash_of(api + 1, stack->text, stack->text_bytes);
    uint64_t known = ss_load(shortcuts[hash % SS_STACKS]);
    uint32_t place = (uint32_t)(known & PLACE_MASK);
    if (!stack->text_bytes || !place || (known ^ hash) & ~PLACE_MASK) {
        if (native && backtrace)
            backtrace(add_frame, stack);
        place = native || stack->text_bytes ? place_of_stack(stack, hash) : 0;
        if (native && stack->text_bytes)
            ss_store(shortcuts[hash % SS_STACKS], (hash & ~PLACE_MASK) | place);
    }
    pthread_setcancelstate(cancel, NULL);
    errno = error;
    ss_store_release(stack->used, 0);
    return place;
}

static int64_t with_credit(int64_t ns, int64_t more)
{
    return ns + more < MOST_CREDIT_NS ? ns + more : MOST_CREDIT_NS;
}

/* What a thread's time is divided by for the time that stacks may take: a hundredth, or less with a small budget. */
uint64_t ss_stack_divisor(void)
{
    uint64_t ppm = ss_load(ss_settings.cost_ppm);
    return ppm && ppm < SS_DEFAULT_COST_PPM ? SS_STACK_SHARE * SS_DEFAULT_COST_PPM / ppm : SS_STACK_SHARE;
}

/* Of the time since its first call for which a stack was wanted, a thread spends a part on stacks at most. Half of
 * each part is for frames of Python if there can be any: the first native frames of a large library take milliseconds. */
static void renew(struct ss_credit *credit, uint64_t start, uint64_t now)
{
    if (!credit->at)
        credit->at = start;
    if (now <= credit->at)
        return;
    int64_t more = (int64_t)((now - credit->at) * credit->parts / (SS_ALL_PARTS * ss_stack_divisor()));
    credit->python_ns = with_credit(credit->python_ns, python.usable ? more / 2 : 0);
    credit->native_ns = with_credit(credit->native_ns, python.usable ? more / 2 : more);
    credit->at = now;
}

static int has_first_credit(void)
{
    return __atomic_load_n(&first_credit_ns, __ATOMIC_RELAXED) > 0;
}

/* The place of the calling thread's stack, or 0, paid for by the process's first credit or by the thread's own. What
 * counts is time on a CPU: on a busy machine a thread may lose its CPU meanwhile, for longer than all it may spend. */
static uint32_t take_for_credit(struct ss_credit *credit, uint32_t api, int first, int native)
{
    uint64_t now = ss_thread_cpu(), python_end = now;
    uint32_t place = take_stack(api, native, &python_end);
    uint64_t end = ss_thread_cpu();
    ss_add(ss_header->stacks, place != 0);
    ss_add(ss_header->stacks_ns, end - now);
    if (first) {
        __atomic_fetch_sub(&first_credit_ns, (int64_t)(end - now), __ATOMIC_RELAXED);
    } else {
        /* Without native frames all of it counts for Python: what follows its frames would be spent without a limit. So
         * would Python's frames be that the other half pays for, where native ones are known and cost nothing. */
        int64_t spent = (int64_t)(end - now);
        int64_t for_python = credit->python_ns > 0 ? native ? (int64_t)(python_end - now) : spent : 0;
        credit->python_ns -= for_python;
        credit->native_ns -= spent - for_python;
    }
    return place;
}

/* Whether stacks can be taken, and are wanted. */
int ss_has_stacks(void)
{
    return ss_load(wanted) && (backtrace || python.usable);
}

/* The place in the file, from 1, of the stack of a call for which one is wanted at ``now``; the thread's credit counts
 * from ``start`` on, if it was never counted before. 0 for none. */
uint32_t ss_stack_of_call(struct ss_credit *credit, uint32_t api, uint64_t start, uint64_t now)
{
    if (!ss_has_stacks())
        return 0;
    renew(credit, start, now);
    int first = has_first_credit();
    int native = first || credit->native_ns > 0;
    if (!native && credit->python_ns <= 0)
        return 0;
    return take_for_credit(credit, api, first, native);
}

/* For a thread that has just got a slot. The main thread needs no stack for its name. */
struct ss_naming ss_begin_naming(uint32_t thread)
{
    int is_python = ss_can_read_python() && thread != ss_header->pid;
    return (struct ss_naming){.due = is_python ? 0 : UINT64_MAX, .tries = NAME_TRIES};
}

/* The place of a stack for the name of a thread: frames of Python alone. A thread's own credit has to cover it, since it
 * may make no more than this call. */
uint32_t ss_stack_for_name(struct ss_naming *naming, struct ss_credit *credit, uint32_t api, uint64_t start,
                           uint64_t now)
{
    renew(credit, start, now);
    int first = has_first_credit();
    int64_t lacking = NAME_NS - credit->python_ns;
    if (!first && lacking > 0) {
        naming->due = now + (uint64_t)lacking * 4 * ss_stack_divisor();
        return 0;
    }
    uint32_t place = take_for_credit(credit, api, first, 0);
    naming->due = place || !--naming->tries ? UINT64_MAX : now + NAME_PAUSE_NS;
    return place;
}
