/* Words that other threads or processes read or write at the same time. */
#ifndef STALLSCOPE_WORDS_H
#define STALLSCOPE_WORDS_H

#define ss_load(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define ss_load_acquire(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define ss_store(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#define ss_store_release(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)
#define ss_add(word, value) __atomic_fetch_add(&(word), (value), __ATOMIC_RELAXED)
/* For a word with a single writer. */
#define ss_increase(word, value) ss_store(word, ss_load(word) + (value))

/* Between an odd sequence number and what it guards. ThreadSanitizer has no fences, nor does it need this one: the
 * reader is another process. */
#if defined(__SANITIZE_THREAD__)
#define ss_fence() ((void)0)
#else
#define ss_fence() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#define ss_likely(condition) __builtin_expect(!!(condition), 1)
#define ss_unlikely(condition) __builtin_expect(!!(condition), 0)

/* What Python calls. The injected library shows none of it to the program: see inject.h. */
#ifdef SS_CORE
#define SS_EXPORTED __attribute__((visibility("default")))
#else
#define SS_EXPORTED
#endif

#endif
