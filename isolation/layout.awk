# From layout.txt: layout.h, by which the compiler holds the structs to it.
BEGIN { print "/* Made from layout.txt by layout.awk. */" }
/^#/ || NF == 0 { next }
{
    printf "_Static_assert(offsetof(struct %s, %s) == %d && sizeof(((struct %s *)0)->%s) == %d, \"layout.txt: %s.%s\");\n", \
        $1, $2, $3, $1, $2, $4, $1, $2
}
