# From names.txt: stubs.S (one trampoline a name), names.h (their indices) and table.c (their names and rules).
BEGIN {
    print "/* Made from names.txt by stubs.awk. */" > header
    print "enum driver_name {" > header
    print "/* Made from names.txt by stubs.awk. */\n#include \"table.h\"" > table
    print "/* Made from names.txt by stubs.awk. A jump may spoil nothing but what callers expect of any call by a table. */" > stubs
    print ".macro to_driver at" > stubs
    print "#if defined(__x86_64__)\n endbr64\n jmp *driver_stubs+\\at(%rip)" > stubs
    print "#elif defined(__aarch64__)\n hint #34 /* bti c */\n adrp x16, driver_stubs+\\at" > stubs
    print " ldr x16, [x16, #:lo12:driver_stubs+\\at]\n br x16" > stubs
    print "#else\n#error how to jump on this machine\n#endif\n.endm\n.hidden driver_stubs\n.text" > stubs
}
/^#/ || NF == 0 { next }
{
    print "    F_" $1 "," > header
    base = $1
    per_thread = sub(/_pt[sd][sz]$/, "", base)
    sub(/_v[0-9]+$/, "", base)
    ours = $2 == "ours"
    rule = ours ? "OURS" : $2 == "refused" ? "REFUSED" : "FORWARDED"
    rows = rows sprintf("    {\"%s\", \"%s\", %s, %d, %d, %s},\n", $1, base, rule, $3, per_thread, ours ? "(void (*)(void))" $1 : "0")
    if (!ours)
        printf ".globl %s\n.type %s,%%function\n.p2align 4\n%s: to_driver %d\n.size %s,.-%s\n", \
            $1, $1, $1, 8 * count, $1, $1 > stubs
    count++
}
END {
    print "    DRIVER_NAMES\n};" > header
    printf "const struct driver_function driver_functions[DRIVER_NAMES] = {\n%s};\n", rows > table
    print ".section .note.GNU-stack,\"\",%progbits" > stubs
}
