/* The beginning of the program, and names of the C library as they were before version 2.34.
 *
 * The compiler's own beginning and `dlopen` would ask for the version of the C library that is
 * here. Boards are often older: with these names the worker runs from glibc 2.17 on.
 */
#ifndef LOOPWRIGHT_START_H_
#define LOOPWRIGHT_START_H_

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
__asm__(
    ".text\n.globl _start\n.type _start, @function\n_start:\n"
    "  xor %ebp, %ebp\n"
    "  mov %rdx, %r9\n" /* what the loader wants called at the end */
    "  pop %rsi\n"      /* the number of words, and where they are */
    "  mov %rsp, %rdx\n"
    "  and $-16, %rsp\n"
    "  push %rax\n"
    "  push %rsp\n"
    "  xor %r8d, %r8d\n" /* nothing before main, nor after it */
    "  xor %ecx, %ecx\n"
    "  lea main(%rip), %rdi\n"
    "  call *__libc_start_main@GOTPCREL(%rip)\n"
    "  hlt\n");
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
__asm__(
    ".text\n.globl _start\n.type _start, %function\n_start:\n"
    "  mov x29, #0\n"
    "  mov x30, #0\n"
    "  mov x5, x0\n"
    "  ldr x1, [sp]\n"
    "  add x2, sp, #8\n"
    "  mov x6, sp\n"
    "  adrp x0, main\n"
    "  add x0, x0, :lo12:main\n"
    "  mov x3, #0\n"
    "  mov x4, #0\n"
    "  bl __libc_start_main\n"
    "  brk #1\n");
#else
#error "workers are made for x86-64 and AArch64"
#endif

#define OLD(name) __asm__(".symver " #name ", " #name "@" OLDEST);
OLD(__libc_start_main)
OLD(dlopen)
OLD(dlsym)
OLD(dlerror)
OLD(dlclose)

#endif
