/* Words that other threads or processes read or write at the same time. */
#ifndef STALLSCOPE_WORDS_H
#define STALLSCOPE_WORDS_H

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define ss_load(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define ss_load_acquire(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define ss_store(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#define ss_store_release(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)
#define ss_add(word, value) __atomic_fetch_add(&(word), (value), __ATOMIC_RELAXED)
/* Addition to a 64-bit word with a single writer. On x86-64 it is one instruction, since gcc makes several of a load
 * and a store. No earlier access is moved behind ss_increase_release. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SS_ADD_IN_PLACE(word, value, ...)                                                                              \
    do {                                                                                                               \
        _Static_assert(sizeof(word) == 8, "a word of 64 bits");                                                        \
        __asm__ volatile("addq %1, %0" : "+m"(word) : "er"((int64_t)(value)) : __VA_ARGS__);                           \
    } while (0)
#define ss_increase(word, value) SS_ADD_IN_PLACE(word, value, "cc")
#define ss_increase_release(word, value) SS_ADD_IN_PLACE(word, value, "cc", "memory")
#else
#define ss_increase(word, value) ss_store(word, ss_load(word) + (value))
#define ss_increase_release(word, value) ss_store_release(word, ss_load(word) + (value))
#endif

/* Fence between the store of an odd sequence number and the stores that the number guards. ThreadSanitizer does not
 * support fences, and needs none here: the reader is another process. */
#if defined(__SANITIZE_THREAD__)
#define ss_fence() ((void)0)
#else
#define ss_fence() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

/* Attribute of a rarely called function: not inlined, so that the frequent path keeps its values in registers. */
#define SS_APART __attribute__((noinline))
/* Attribute of a function in the path of every call: it is always inlined. */
#define SS_INLINE static inline __attribute__((always_inline))

/* Attribute of a function for processors with BMI1, BMI2 and LZCNT, which find the bucket of a value faster. */
#if defined(__x86_64__)
#define SS_BMI2 __attribute__((target("lzcnt,bmi,bmi2")))
#else
#define SS_BMI2
#endif

/* Whether this processor runs such functions. Without LZCNT, as behind a hypervisor that hides it, the instruction is
 * another one, and its result wrong. */
static inline int ss_has_bmi2(void)
{
#if defined(__x86_64__)
    unsigned int a, b, extended, d;
    return __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __get_cpuid(0x80000001, &a, &b, &extended, &d) && extended >> 5 & 1;
#else
    return 0;
#endif
}

#define ss_likely(condition) __builtin_expect(!!(condition), 1)
#define ss_unlikely(condition) __builtin_expect(!!(condition), 0)

/* Attribute of a function that Python calls. The injected library hides it from the program (see state.h). */
#ifdef SS_CORE
#define SS_EXPORTED __attribute__((visibility("default")))
#else
#define SS_EXPORTED
#endif

#endif
