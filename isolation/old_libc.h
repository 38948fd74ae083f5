/* Included before everything: asks for the forms of these functions that every glibc since 2.17 has, or the library
 * could not be loaded into images that are older than the one it is built in. Before glibc 2.34 they were in libraries
 * of their own, which the linker therefore has to name. */
#ifndef ALIQUOT_OLD_LIBC_H
#define ALIQUOT_OLD_LIBC_H

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#ifdef __x86_64__
#define OLD(name, version) __asm__(".symver " #name "," #name "@GLIBC_" #version)
#else /* its first glibc was 2.17 */
#define OLD(name, version) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
OLD(dlopen, 2.2.5);
OLD(dlsym, 2.2.5);
OLD(dlerror, 2.2.5);
OLD(pthread_create, 2.2.5);
OLD(pthread_once, 2.2.5);
OLD(pthread_detach, 2.2.5);
OLD(pthread_sigmask, 2.2.5);
OLD(pthread_mutex_trylock, 2.2.5);
OLD(pthread_mutex_consistent, 2.12);
OLD(pthread_mutexattr_init, 2.2.5);
OLD(pthread_mutexattr_destroy, 2.2.5);
OLD(pthread_mutexattr_setpshared, 2.2.5);
OLD(pthread_mutexattr_setrobust, 2.12);
#undef OLD
#endif

#endif
