"""How much device memory text (PTX) declares, form by form; each figure was worked out by hand."""

from __future__ import annotations

import ctypes
import functools
import re
from random import Random

import pytest

from support.pure_c import ROOT, compiled

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

REFUSED = (1 << 64) - 1
HEAD = ".version 8.0\n.target sm_80, debug\n.address_size 64\n"
GIB = 1 << 30


@functools.cache
def _weigher() -> ctypes.CDLL:
    loaded = compiled(*(ROOT / "isolation" / name for name in ("ptx.c", "ptx_tokens.c")))
    loaded.text_variables.restype = ctypes.c_uint64
    loaded.text_variables.argtypes = ctypes.c_char_p, ctypes.c_uint64
    return loaded


def weight(text: str | bytes) -> int:
    """Bytes of its variables."""
    content = text if isinstance(text, bytes) else text.encode()
    return int(_weigher().text_variables(content, len(content)))


# Where an alignment is told, as many bytes less one are counted besides: so much may be left empty before it.
DECLARED = [
    # Every type, and vectors.
    (".global .b8 x;", 1),
    (".global .u16 x[3];", 6),
    (".const .s32 x[2];", 8),
    (".global .f64 x[2];", 16),
    (".global .b128 x[2];", 32),
    (".global .bf16x2 x[4];", 16),
    (".global .e4m3x4 x[4];", 16),
    (".global .e5m2 x[4];", 4),
    (".global .v2 .u8 x[4];", 8),
    (".global .v4 .f32 x[2];", 32),
    (".global .v8 .b32 x;", 32),
    (".global .texref t;", 64),
    (".tex .u32 t;", 4),
    # The words before a name, in any order and as close as they may be.
    (f".visible .global .b8 x[{8 * GIB}];", 8 * GIB),
    (f".visible.global .b8 x[{8 * GIB}];", 8 * GIB),
    (f".global.b8 x[{8 * GIB}];", 8 * GIB),
    (f".global.align 8 .b8 x[{8 * GIB}];", 8 * GIB + 7),
    (".visible.global.align 8.b8 x[1];", 1 + 7),
    (".weak .global .align 256 .b8 x[100];", 100 + 255),
    (".common .global .b8 x[16];", 16),
    (".align 4 .u32 .global x[2];", 8 + 3),
    (".extern .global .b8 x[7];", 7),
    (".extern .const .b8 x[];", 0),
    (".global .b32 x[];", 4),
    (".const .u64 x[][1000];", 8000),
    (".const[3] .b8 x[5];", 5),
    (".extern .const[11] .b32 x[2];", 8),
    (".visible .global .attribute(.managed) .u32 x[16];", 64),
    (".global .attribute(.unified(19,95)) .f32 x[4];", 16),
    # Names.
    (".global .b8 %x[5];", 5),
    (".global .b8 a[4], %b[5];", 9),
    (".global .b8 _a[4], $b[5], _[6];", 15),
    (".global .b8 ld[5];", 5),
    (".global .b8 x<100>;", 100),
    (".global .align 16 .b8 x<100>;", 1600 + 15),
    (".global .u32 x<100>, y;", 404),
    (".global .u32\tx\r\n[\n2\n]\n;", 8),
    # Sizes.
    (".global .b8 x[010];", 8),
    (".global .b8 x[0x10];", 16),
    (".global .b8 x[0b101];", 5),
    (".global .b8 x[32U];", 32),
    (".global .b8 x[4*8];", 32),
    (".global .b8 x[16*1024];", 16384),
    (".global .b8 x[(1<<20)+2*8-1];", (1 << 20) + 15),
    (".global .b8 x[1 + 2 << 3 | 1];", 25),
    (".global .b8 x[100/7-3*2+(5^1)];", 14 - 6 + 4),
    (".global .b8 x[12>>2&1^6];", 7),
    (".global .u16 x[3][4][5];", 120),
    # What a variable holds, and how many that is where its size is left out.
    (".global .u32 a = 5, b = 6, c;", 12),
    (".global .u64 x[2] = {generic(a), 0xFF(b)+4};", 16),
    (".global .u64 x[] = {generic(a), 0xFF(b)+4, -1};", 24),
    (".global .u64 x[] = { 0,0,0,0 };", 32),
    (".global .u64 x[][1000] = {{0},{0},{0}};", 24000),
    (".global .b8 x[][2][3] = {{{1,2,3},{4,5,6}},{{0}}};", 12),
    (".global .f32 x[2] = {0f3F800000, .5}, y = 1., z[] = {1.5, 2.5};", 8 + 4 + 8),
    ('.global .b8 x[] = "abc";', 5),
    (".global .v2 .u32 x[2] = {{1,2},{3,4}}; .global .b8 y;", 17),
    # Nothing hides it.
    ("/* .global .b8 x[9]; */ .global .b8 y /* ; = 0 */ [2]; // .global .b8 z[9];\n", 2),
    ("//\n.global .b8 x[3]; // */\r\n.global .b8 y[4]; /* // */ .global .b8 z[5];", 12),
    ('.file 1 "a \\\\", 2, 3 .global .b8 x[3];', 3),
    ('.file 1 "// /* .global .b8 y[9];" .global .b8 x[3];', 3),
    (".version 8.0.global .b8 x[3]; .address_size 64.global .b8 y[4];", 7),
    (".target sm_80 .global .b8 x[3];", 3),
    (".loc 1 2 3, function_name f+4, inlined_at 1 2 3 .global .b8 x[3];", 3),
    (".func f() { foo: bar: .global .b8 x[3]; { .const .b8 y[4]; } ret; }", 7),
    (".func f() { @%p bra foo; .global .b8 x[3]; }", 3),
    ("{ } ; ; .global .b8 x[3];", 3),
    (".section .debug_str { name: .b8 1,2 .b32 name } .global .b8 x[3];", 3),
    # What takes none.
    (".shared .b8 x[9]; .extern .shared .align 16 .b8 y[]; .local .b8 z[9]; .reg .b64 %rd<9>;", 0),
    (".visible .entry f(.param .u64 .ptr .global .align 16 p) .maxntid 1, 2, 3 { ret; }", 0),
    (".weak .func (.param .b32 r) f (.param .b64 p, .param .align 8 .b8 q[24]) .noreturn;", 0),
    (".func f() { ld .global .u32 r1, [rd1]; st.const.v2.b32 [x+4], {a, b}; }", 0),
    (".func f() { cvta.to.global.u64 %rd1, %rd2; @!p red.global.add.f32 [%rd3], %f1; }", 0),
    (".func f() { p: .callprototype (.param .b32 _) _ (.param .b64 _); call (r), %rd1, (a), p; }", 0),
    ('.func f() { .pragma "nounroll"; l: .branchtargets a, b; brx.idx %r1, l; } .alias g, f;', 0),
    (".func f() { .loc 1 2 3\n ld.global.u32 %r1, [%rd1]; ld.shared::cta.b32 %r1, [%r2]; }", 0),
]


@pytest.mark.parametrize(("text", "declared"), DECLARED, ids=[text for text, _ in DECLARED])
def test_what_is_declared_is_counted(text: str, declared: int) -> None:
    """To the byte, with what stands around it, and with zeros behind it."""
    assert weight(HEAD + text) == declared
    assert weight(HEAD.encode() + text.encode() + bytes(5)) == declared


# Two signs that are one stay together, and so does what a dot may or may not split.
TOKEN = re.compile(r'"[^"]*"|//.*|/\*.*?\*/|<<|>>|[0-9][\w.]*|[.]?[\w$%]+|\S')
BETWEEN = [" ", "\n", "\t\r\n", " /**/", " /* .global .b8 q[9]; // */", ' // ; /* { " .const .b8 q[9];\n']


@pytest.mark.parametrize("seed", range(20))
def test_what_stands_between_words_changes_nothing(seed: int) -> None:
    """Any of the table's texts, one behind the other, with remarks, lines and spaces wherever they may be."""
    random = Random(seed)
    text, declared = HEAD, 0
    for one, its in random.choices(DECLARED, k=8):
        for token in TOKEN.findall(one):
            text += ("\n" if token.startswith("//") else random.choice(BETWEEN)) + token
            text += "\n" if token.startswith("//") else ""
        declared += its
    assert weight(text) == declared


NOT_UNDERSTOOD = [
    # What one reader ends or splits where another does not.
    '.file 1 "a\\"";\n.global .b8 x[9];\n.file 2 "b\\""',
    '.file 1 "a\n.global .b8 x[9]; .file 2 "',
    '.file 1 "a\\" .global .b8 x[9]; .file 2 "b"',
    "// a \\\n/*\n.global .b8 x[9]; // */",
    "/* a *\\\n/ .global .b8 x[9]; /* */",
    "// a\r.global .b8 x[9];",
    "/* .global .b8 x[9];",
    "ret;\0.global .b8 x[9];",
    "#define G .global\nG .b8 x[9];",
    ".global .b8 x\\\n[9];",
    "ret #;",
    "ret \xe9;",
    # Words that are none, or not here.
    ".visible.globalx[9];",
    ".global .b8x[9];",
    ".global .b9 x[9];",
    ".global .b8 .b16 x[9];",
    ".global .v2 .v4 .b8 x[9];",
    ".global .v3 .b8 x[9];",
    ".global x[9];",
    ".global .b8 5;",
    ".newspace .b8 x[9];",
    ".b8 x[9];",
    ".shared .b8 x[9] .global .b8 y[9];",
    ".reg .b32 x, .globaly[9];",
    ".reg .b32 x, .consty[9];",
    ".reg .b32 x .tex .u32 y;",
    ".reg .b32 x) .global .b8 y[9];",
    ".reg .b32 x(; .global .b8 y[9];",
    ".loc 1 2 3, ;",
    ".entry f() .global .b8 x[9];",
    ".target .global .b8 x[9];",
    ".target .globalx ret;",
    ".global .shared .b8 x[9];",
    ".const .func f();",
    '.file 1 "a", .global .b8 x[9];',
    ".section .debug_str { .global .b8 x[9]; }",
    ".section .global .b8 x[9];",
    ".section .debug_str { .global .b8 x; }",
    ".section .debug_str { { .b8 1 } }",
    "@@DWARF .byte 1\n.global .b8 x[9];",
    ".attribute .global .b8 x[9];",
    ".global .attribute x .b8 y[9];",
    ".align 0 .global .b8 x[9];",
    # Sizes that are none, or more than there is.
    ".global .b8 x[y];",
    ".global .b8 x[08];",
    ".global .b8 x[0b];",
    ".global .b8 x[-1];",
    ".global .b8 x[1-2];",
    ".global .b8 x[1/0];",
    ".global .b8 x[1<<64];",
    ".global .b8 x[1.5];",
    ".global .b8 x[99999999999999999999999];",
    ".global .b8 x[4294967296][4294967296];",
    ".global .align 16 .b8 x[4294967295][4294967297];",
    ".global .b8 x[(1<<32)*(1<<32)+9];",
    f".global .b8 x[{'(' * 100_000}1{')' * 100_000}];",
    ".global .b8 x[][] = {1};",
    ".global .b8 x[2][] = {1};",
    ".global .b8 x[2",
    ".global .b8 x<2;",
    ".global .b8 x[2] y[9];",
    ".global .b8 x = {1; .global .b8 y[9];",
    ".global .b8 x = 1 .global .b8 y[9];",
    f".global .b8 {', '.join(f'x{i}[70368744177664]' for i in range(3))};",
    # As many as make nothing again of 64 bits.
    f".global .b8 x{',x'.join(['[1<<46]'] * (1 << 18))};",
]


@pytest.mark.parametrize("text", NOT_UNDERSTOOD, ids=[text[:60] for text in NOT_UNDERSTOOD])
def test_what_is_not_understood_is_refused(text: str) -> None:
    """Wherever two readers may differ, or no size is told."""
    assert weight(HEAD + text) == REFUSED


COMPILED = """//
// Generated by a compiler
//
.version 8.3
.target sm_90a
.address_size 64

	// .globl	_Z3addPfS_i
.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
)
;
.visible .const .align 4 .b8 table[16] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64};
.global .align 1 .b8 $str[12] = {114, 101, 115, 117, 108, 116, 32, 37, 102, 10, 0, 0};
.extern .shared .align 16 .b8 smem[];

.visible .entry _Z3addPfS_i(
	.param .u64 _Z3addPfS_i_param_0,
	.param .u32 _Z3addPfS_i_param_1
)
.maxntid 256, 1, 1
.minnctapersm 2
{
	.local .align 8 .b8 	__local_depot0[8];
	.reg .b64 	%SP;
	.reg .pred 	%p<2>;
	.reg .b32 	%r<6>;
	.shared .align 4 .b8 tile[4096];
$L__func_begin0:
	.loc	1 3 0
	ld.param.u64 	%rd1, [_Z3addPfS_i_param_0];
	.loc	1 4 5, function_name $L__info_string0, inlined_at 1 9 3
	mov.u32 	%r1, %ctaid.x;
	mad.lo.s32 	%r4, %r1, %r2, %r3;
	setp.ge.s32 	%p1, %r4, %r5;
	@%p1 bra 	$L__BB0_2;
	cvta.to.global.u64 	%rd3, %rd1;
	ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd5+16];
	{ // callseq 0, 0
	.reg .b32 temp_param_reg;
	.param .b64 param0;
	st.param.b64 	[param0+0], %rd6;
	call.uni (retval0),
	vprintf,
	(
	param0
	);
	} // callseq 0
$L__tmp0:
$L__BB0_2:
	ret;
$L__func_end0:
}
	.file	1 "/src/add.cu"
	.section	.debug_abbrev
	{
.b8 1                                   // Abbreviation Code
.b8 17,1
	}
	.section	.debug_info
	{
.b32 77                                 // Length of Unit
.b32 .debug_abbrev                      // Offset Into Abbrev. Section
.b64 $L__func_begin0
.b32 $L__info_string0-4
	}
	.section	.debug_loc	{	}
"""


def test_what_compilers_write_is_read() -> None:
    """Debugger's tables, calls, remarks: of all that, two arrays are in the device's memory."""
    assert weight(COMPILED) == 16 + 3 + 12
    assert weight(COMPILED.replace("\n", "\r\n")) == 16 + 3 + 12
