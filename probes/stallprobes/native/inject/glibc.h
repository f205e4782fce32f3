/* Versions of the C library's functions: the injected library is loaded into other people's processes and containers,
 * and so needs at most GLIBC_2.17, whatever C library it is linked with.
 *
 * glibc 2.32 to 2.34 moved these functions into libc.so.6 under new versions, and has them under the former ones too.
 */
#ifndef STALLSCOPE_GLIBC_H
#define STALLSCOPE_GLIBC_H

/* Oldest versions of the functions below: SS_NEXT_GLIBC of dladdr1, SS_FIRST_GLIBC of all others. */
#if defined(__x86_64__)
#define SS_FIRST_GLIBC "GLIBC_2.2.5"
#define SS_NEXT_GLIBC "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define SS_FIRST_GLIBC "GLIBC_2.17"
#define SS_NEXT_GLIBC "GLIBC_2.17"
#else
#error "stallscope works on x86-64 and AArch64"
#endif

/* SS_OLD: makes the library need a function in its oldest version. Sanitizers replace some of these functions. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SS_OLD(function) __asm__(".symver " #function "," #function "@" SS_FIRST_GLIBC)

SS_OLD(dladdr);
SS_OLD(dlclose);
SS_OLD(dlopen);
SS_OLD(dlsym);
SS_OLD(pthread_attr_setstacksize);
SS_OLD(pthread_create);
SS_OLD(pthread_key_create);
SS_OLD(pthread_once);
SS_OLD(pthread_setspecific);
SS_OLD(pthread_sigmask);
__asm__(".symver dladdr1,dladdr1@" SS_NEXT_GLIBC);
#endif

#endif
