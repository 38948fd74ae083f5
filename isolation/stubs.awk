# From names.txt: stubs.S (one trampoline a name), names.h (their indices) and table.c (their names and rules).
BEGIN {
    print "/* Made from names.txt by stubs.awk. */" > header
    print "enum driver_name {" > header
    print "/* Made from names.txt by stubs.awk. */\n#include \"table.h\"" > table
    print "/* Made from names.txt by stubs.awk. */\n.text" > stubs
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
        printf ".globl %s\n.type %s,@function\n.p2align 4\n%s: endbr64\n jmp *driver_stubs+%d(%%rip)\n.size %s,.-%s\n", \
            $1, $1, $1, 8 * count, $1, $1 > stubs
    count++
}
END {
    print "    DRIVER_NAMES\n};" > header
    printf "const struct driver_function driver_functions[DRIVER_NAMES] = {\n%s};\n", rows > table
    print ".section .note.GNU-stack,\"\",@progbits" > stubs
}
