/* Slow calls inside NVTX ranges, as the first argument says: of NVTX itself where its headers are installed
 * (REAL_NVTX), else of a stand-in that loads the injected library and calls it as NVTX does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "stand_in.h"

#ifdef REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#else
enum { CORE = 1, CORE2 = 5, FUNCTIONS_OF_MODULE = 16 };
typedef void (*function)(void);
struct event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t messageType;
    union { const char *ascii; const wchar_t *unicode; const void *registered; } message;
};
typedef struct event nvtxEventAttributes_t;
typedef const void *nvtxDomainHandle_t;
enum { NVTX_VERSION = 3, NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_REGISTERED = 3 };
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(struct event))

static function set[CORE2 + 1][FUNCTIONS_OF_MODULE];
static function *slots[CORE2 + 1][FUNCTIONS_OF_MODULE];

static int get_functions(int module, function ***found, unsigned *count)
{
    for (int number = 1; number < FUNCTIONS_OF_MODULE; number++)
        slots[module][number] = &set[module][number];
    *found = slots[module];
    *count = FUNCTIONS_OF_MODULE;
    return 1;
}

static const void *get_table(uint32_t number)
{
    static const struct { size_t size; int (*get)(int, function ***, unsigned *); } table = {sizeof table, get_functions};
    return number == 1 ? &table : NULL;
}

static void load(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*initialize)(const void *(*)(uint32_t));
    void *found = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    memcpy(&initialize, &found, sizeof found);
    if (initialize)
        initialize(get_table);
}

static function function_of(int module, int number)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return set[module][number];
}
#define CALL_NVTX(module, number, type, otherwise, ...)                                                                \
    (function_of(module, number) ? ((type)function_of(module, number))(__VA_ARGS__) : (otherwise))
typedef uint64_t nvtxRangeId_t;
#define nvtxRangeStartEx(event) CALL_NVTX(CORE, 4, uint64_t (*)(const void *), 0, event)
#define nvtxRangeStartA(name) CALL_NVTX(CORE, 5, uint64_t (*)(const char *), 0, name)
#define nvtxRangeStartW(name) CALL_NVTX(CORE, 6, uint64_t (*)(const wchar_t *), 0, name)
#define nvtxRangeEnd(id) (function_of(CORE, 7) ? ((void (*)(uint64_t))function_of(CORE, 7))(id) : (void)0)
#define nvtxDomainRangeStartEx(domain, event)                                                                          \
    CALL_NVTX(CORE2, 2, uint64_t (*)(const void *, const void *), 0, domain, event)
#define nvtxDomainRangeEnd(domain, id)                                                                                 \
    (function_of(CORE2, 3) ? ((void (*)(const void *, uint64_t))function_of(CORE2, 3))(domain, id) : (void)0)
#define nvtxRangePushA(name) CALL_NVTX(CORE, 9, int (*)(const char *), -1, name)
#define nvtxRangePushW(name) CALL_NVTX(CORE, 10, int (*)(const wchar_t *), -1, name)
#define nvtxRangePushEx(event) CALL_NVTX(CORE, 8, int (*)(const void *), -1, event)
#define nvtxRangePop() CALL_NVTX(CORE, 11, int (*)(void), -1)
#define nvtxDomainRangePushEx(domain, event) CALL_NVTX(CORE2, 4, int (*)(const void *, const void *), -1, domain, event)
#define nvtxDomainRangePop(domain) CALL_NVTX(CORE2, 5, int (*)(const void *), -1, domain)
#define nvtxDomainRegisterStringA(domain, name)                                                                        \
    CALL_NVTX(CORE2, 10, const void *(*)(const void *, const char *), NULL, domain, name)
#define nvtxDomainCreateA(name) CALL_NVTX(CORE2, 12, const void *(*)(const char *), NULL, name)
#endif

static void slow_call(void)
{
    static char target[4];
    stand_in_length(2000000);
    cuMemcpyDtoHAsync_v2(target, UINT64_C(0x7f0000000000), sizeof target, (void *)0x11);
}

static void *push_many(void *unused)
{
    for (int number = 0; number < 100; number++)
        nvtxRangePushA("deep");
    slow_call();
    for (int number = 0; number < 99; number++)
        nvtxRangePop();
    slow_call();
    return unused;
}

static void *call_slowly(void *unused)
{
    slow_call();
    return unused;
}

static void slow_call_in_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, call_slowly, NULL);
    pthread_join(thread, NULL);
}

/* Ranges that belong to no thread. */
static void start_and_end(void)
{
    nvtxEventAttributes_t event = {0};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "loss";
    nvtxRangeEnd(0);
    slow_call();
    nvtxRangeId_t request = nvtxRangeStartA("request");
    slow_call();
    slow_call_in_thread();
    nvtxRangePushA("step");
    slow_call();
    slow_call_in_thread();
    nvtxRangePop();
    nvtxRangeId_t wide = nvtxRangeStartW(L"vorw\u00e4rts");
    slow_call();
    nvtxRangeId_t loss = nvtxRangeStartEx(&event);
    slow_call();
    /* Not in the order in which they began. */
    nvtxRangeEnd(wide);
    slow_call();
    nvtxRangeEnd(loss);
    nvtxRangeEnd(loss);
    slow_call();
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain, "reduce");
    nvtxRangeId_t reduce = nvtxDomainRangeStartEx(domain, &event);
    slow_call();
    nvtxDomainRangeEnd(domain, reduce);
    nvtxRangeEnd(request);
    slow_call();
}

/* More than there are places for; those that had one give it back. */
static void start_many(void)
{
    nvtxRangeId_t ids[100];
    for (int number = 0; number < 100; number++)
        ids[number] = nvtxRangeStartA(number < 50 ? "early" : "late");
    slow_call();
    for (int number = 99; number >= 0; number--)
        nvtxRangeEnd(ids[number]);
    slow_call();
    nvtxRangeId_t again = nvtxRangeStartA("again");
    slow_call();
    nvtxRangeEnd(again);
}

static void *start_often(void *unused)
{
    for (int number = 0; number < 2000; number++)
        nvtxRangeEnd(nvtxRangeStartA("often"));
    return unused;
}

/* Ranges start and end in threads while others read them. */
static void start_in_threads(void)
{
    pthread_t threads[4];
    for (int number = 0; number < 4; number++)
        pthread_create(&threads[number], NULL, number % 2 ? call_slowly : start_often, NULL);
    for (int number = 0; number < 4; number++)
        pthread_join(threads[number], NULL);
}

static void *one_request(void *unused)
{
    nvtxRangePushA("request 7");
    nvtxRangePop();
    return unused;
}

static void run_steps(void)
{
    char name[80];
    pthread_t thread;
    for (int step = 0; step < 1500; step++) {
        snprintf(name, sizeof name, "step %d of 1500", step);
        nvtxRangePushA(name);
        nvtxRangePushA("forward");
        nvtxRangePop();
        nvtxRangeEnd(nvtxRangeStartA("reduce"));
        nvtxRangePop();
    }
    for (int number = 0; number < 20; number++) {
        pthread_create(&thread, NULL, one_request, NULL);
        pthread_join(thread, NULL);
    }
    /* More names than are kept. */
    for (int number = 0; number < 2 * 26 * 26; number++) {
        snprintf(name, sizeof name, "%c%c%c", number % 2 ? 'x' : 'y', 'a' + number / 2 % 26, 'a' + number / 52);
        nvtxRangePushA(name);
        nvtxRangePop();
    }
    nvtxRangePushA("");
    nvtxRangePop();
    nvtxRangePushA("step 1 of 2");
    nvtxRangePop();
}

/* A forked process records from its first call of the driver on. */
static void run_forked(void)
{
    int status;
    nvtxRangePushA("step");
    nvtxRangePushA("step");
    pid_t child = fork();
    if (!child) {
        nvtxRangePushA("step");
        nvtxRangePop();
        cuCtxSynchronize();
        nvtxRangePushA("step");
        nvtxRangePop();
        nvtxRangePop();
        nvtxRangePushA("child");
        exit(0);
    }
    waitpid(child, &status, 0);
    nvtxRangePushA("step");
    nvtxRangePushA("parent");
    exit(!WIFEXITED(status) || WEXITSTATUS(status));
}

int main(int count, char **arguments)
{
    cuInit(0);
    if (count > 1 && !strcmp(arguments[1], "forked"))
        run_forked();
    if (count > 1 && !strcmp(arguments[1], "steps")) {
        run_steps();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "started")) {
        start_and_end();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "started-many")) {
        start_many();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "started-in-threads")) {
        start_in_threads();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "threads")) {
        pthread_t threads[4];
        for (int number = 0; number < 4; number++)
            pthread_create(&threads[number], NULL, push_many, NULL);
        for (int number = 0; number < 4; number++)
            pthread_join(threads[number], NULL);
        return 0;
    }
    nvtxEventAttributes_t event = {0};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "loss";
    slow_call();
    int levels = nvtxRangePushA("step");
    slow_call();
    levels = 10 * levels + nvtxRangePushW(L"vorw\u00e4rts \U0001f600");
    slow_call();
    levels = 10 * levels + nvtxRangePop();
    levels = 10 * levels + nvtxRangePushEx(&event);
    slow_call();
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain, "reduce");
    nvtxDomainRangePushEx(domain, &event);
    slow_call();
    /* The range of the program ends, that of the domain does not. */
    nvtxRangePop();
    slow_call();
    nvtxDomainRangePop(domain);
    slow_call();
    nvtxRangePop();
    slow_call();
    printf("%d\n", levels);
    return 0;
}
