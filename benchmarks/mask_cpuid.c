/* Hides AVX512, VNNI and AMX from a program, so that it runs its AVX2 kernels at full speed on a newer processor.
 *
 *     cc -O1 -shared -fPIC -o mask_cpuid.so mask_cpuid.c
 *     LD_PRELOAD=./mask_cpuid.so python ...
 *
 * Linux lets a process fault on the CPUID instruction where the processor can (flag cpuid_fault). The handler runs the
 * instruction and clears the bits of what is to be hidden. The program exits with 77 where the system cannot do it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (1u << (n))

static long allow_cpuid(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

static void on_fault(int signal_number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* a fault of the program's own */
        signal(signal_number, SIG_DFL);
        return;
    }
    unsigned a = registers[REG_RAX], c = registers[REG_RCX], b, d, leaf = a, part = c;
    allow_cpuid(1);
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    allow_cpuid(0);
    if (leaf == 7 && part == 0) {
        b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* AVX512 */
        c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));                                /* AVX512, VNNI */
        d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));             /* AVX512, AMX */
    }
    if (leaf == 7 && part == 1) {
        a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23)); /* AVX-VNNI, bf16, AMX */
        d &= ~(BIT(4) | BIT(5) | BIT(10) | BIT(19)); /* AVX-VNNI of 8 and 16 bits, AVX10 */
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void mask(void) {
    struct sigaction action = {0};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, 0);
    if (allow_cpuid(0) != 0) _exit(77);
}
