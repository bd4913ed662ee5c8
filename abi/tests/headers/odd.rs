//! The readers of Rust and of C on odd input, and the comparison on planted mistakes.

use libtest_mimic::{Failed, Trial};

use crate::c::{self, Names};
use crate::compare::{self, Question};
use crate::source::{self, Source, Token};

/// The tests.
pub(crate) fn trials() -> Vec<Trial> {
    let all: [(&str, fn()); 10] = [
        ("rust::tokens", rust_tokens),
        ("rust::since", rust_since),
        ("rust::items", rust_items),
        ("rust::odd", rust_odd),
        ("rust::values", rust_values),
        ("c::names", c_names),
        ("c::members", c_members),
        ("c::odd", c_odd),
        ("planted::tables", planted_tables),
        ("planted::answers", planted_answers),
    ];
    all.into_iter()
        .map(|(name, test)| {
            let run = move || -> Result<(), Failed> {
                test();
                Ok(())
            };
            Trial::test(format!("reader::{name}"), run)
        })
        .collect()
}

fn parse(text: &str) -> Result<Source, String> {
    let mut source = Source::default();
    source::parse("file", text, &mut source).map(|()| source)
}

#[track_caller]
fn parsed(text: &str) -> Source {
    parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn rust_tokens() {
    let word = |w: &str| Token::Word(w.to_owned());
    let all = source::tokens(
        "/// doc\n//// none\n//! none\n/* a /* b */ pub const */ r#type 'a' '\\'' 'life b\"\\\"\" \
         r#\"\"pub\"\"# br\"x\" 0xFF_u8 ä",
    );
    let other = || Token::Other;
    assert_eq!(
        all,
        Ok(vec![
            Token::Doc("doc".to_owned()),
            word("type"),
            other(),
            other(),
            other(),
            other(),
            other(),
            other(),
            Token::Number("0xFF_u8".to_owned()),
            word("ä"),
        ])
    );
    for bad in ["/* /* */", "\"", "r#\"\"", "'\\", "\"\\\""] {
        assert!(source::tokens(bad).is_err(), "{bad}");
    }
    assert_eq!(source::tokens(""), Ok(Vec::new()));
}

fn rust_since() {
    for (doc, version) in [
        ("A thing. Since 6.12.", Some((6, 12))),
        ("Since 7.3. Optional.", Some((7, 3))),
        ("Since 7.3.\nmore", Some((7, 3))),
        ("rxe: since 6.12.", None),
        ("Since then. Since 6.12.", Some((6, 12))),
        ("Since 6.12", None),
        ("Since ", None),
        ("Since 6.", None),
        ("", None),
    ] {
        assert_eq!(source::since(doc), version, "{doc}");
    }
}

fn rust_items() {
    let source = parsed(
        "#![allow(x)]\nuse a::{b, c};\npub use d::{e};\nmacro_rules! m { ($x:ident) => { pub struct X; } }\n\
         m! { y }\nconst PRIVATE: [u8; 2] = [{ 1 }, 2];\nimpl<K> A<K> { fn f() { let x = 1; } }\n\
         pub const fn g() -> u8 { 3 }\npub struct T(u8);\n\
         kernel_struct! {\n/// Since 7.3.\n#[x]\npub struct s, size 8, align 4 {\n\
         [0] pub r#type: u32,\n/// Since 6.12.\n[4] pub(crate) a: [u8; N - 1],\n}\n}\n\
         /// Since 6.12.\npub mod outer {\npub const N: u32 = 5;\n/// Since 7.3.\npub const A: Attr<In<u64>> =\n\
         Attr::new(0x1_0);\n}\n/// Names.\npub enum DriverId {\n/// Since 6.12.\nOne,\nOther(u32),\n}\n",
    );
    let [item] = source.structs.as_slice() else {
        panic!("{:?}", source.structs);
    };
    assert_eq!((item.name.as_str(), item.size, item.align), ("s", 8, 4));
    assert_eq!(item.since, Some((7, 3)));
    let fields: Vec<_> = item
        .fields
        .iter()
        .map(|f| (f.name.as_str(), f.offset, source.width(&f.ty), f.since))
        .collect();
    assert_eq!(
        fields,
        [
            ("type", 0, Ok(4), Some((7, 3))),
            ("a", 4, Ok(4), Some((6, 12)))
        ]
    );
    let consts: Vec<_> = source
        .consts
        .iter()
        .map(|c| (c.path.join("/"), c.name.as_str(), source.value(c), c.since))
        .collect();
    let inside = || "file/outer".to_owned();
    assert_eq!(
        consts,
        [
            (inside(), "N", Ok(5), Some((6, 12))),
            (inside(), "A", Ok(16), Some((7, 3)))
        ]
    );
    let drivers: Vec<_> = source.drivers.into_iter().collect();
    let name = |n: &str| n.to_owned();
    assert_eq!(
        drivers,
        [(name("One"), Some((6, 12))), (name("Other"), None)]
    );
}

/// What is not understood is an error, and never left out.
fn rust_odd() {
    for bad in [
        "kernel_struct! { pub struct s, size 8, align 4 { } }",
        "kernel_struct! { pub struct s, size 8, align 4 { [0] a: u8 b: u8 } }",
        "kernel_struct! { pub struct s, size x, align 4 { [0] a: u8 } }",
        "kernel_struct! { pub struct s, size 8, align 4 { [-1] a: u8 } }",
        "kernel_struct! { pub struct s, size 8, align 4 { [0] a: &u8 } }",
        "kernel_struct! { pub struct s, size 8, align 4 { [0] a: [u8; 4 } }",
        "kernel_struct! { pub struct s { [0] a: u8 } }",
        "kernel_struct! {",
        "fn f() {\nkernel_struct! { pub struct s, size 1, align 1 { [0] a: u8 } }\n}",
        "impl X {\npub const A: u8 = 1;\n}",
        "macro_rules! m { () => {\npub const A: u8 = 1;\n} }",
        "pub const A: u8 = 1",
        "pub const A: u8",
        "pub const A: Attr<X> = Attr::old(1);",
        "pub const A: Attr<X> = Attr::new(1;",
        "mod a { mod b {",
        "}",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    assert!(parse("").is_ok());
}

fn rust_values() {
    let value = |text: &str| {
        let source = parse(&format!("pub const B: u8 = 3;\npub const A: {text};"))?;
        let item = source.consts.last().ok_or("none")?;
        source.value(item)
    };
    for (text, is) in [
        ("u32 = 1 << 31", 1 << 31),
        ("u64 = 1 << 63", 1 << 63),
        ("u32 = 1 | 2 << 4", 33),
        ("u32 = (1 | 2) << 4", 48),
        ("u32 = 1 << 2 + 1", 8),
        ("u32 = 0xFFFF_FFFF", 0xFFFF_FFFF),
        ("u16 = 0b11u16", 3),
        ("i32 = -1", -1),
        ("u8 = B * 2 - 1", 5),
        ("usize = 24", 24),
    ] {
        assert_eq!(value(text), Ok(is), "{text}");
    }
    for bad in [
        "u8 = 256",
        "u8 = -1",
        "i8 = 128",
        "u32 = 1 << 64",
        "u32 = 1 << -1",
        "u32 = 2 as u32",
        "u32 = C",
        "u32 = A",
        "u32 = size_of::<X>()",
        "u32 = 1 2",
        "u32 = (1",
        "u32 = \"1\"",
        "u32 = 0x",
        "u32 = ",
        "f32 = 1",
        "bool = true",
    ] {
        assert!(value(bad).is_err(), "{bad}");
    }
}

fn c_names() {
    let names = Names::read(
        "# 1 \"/x/usr/include/rdma/a.h\" 1\n#define ONE\n#define TWO(x) THREE\n  enum { FOUR = 1 };\n\
         # 9 \"/x/usr/include/linux/b.h\" 2\nstruct s { int a; };\nstruct t;\nstruct u { int : 3; };\n\
         #undef ONE\n#\nstruct s v = { FOUR };\n",
    );
    for (name, header) in [
        ("ONE", Some("rdma/a.h")),
        ("TWO", Some("rdma/a.h")),
        ("THREE", None),
        ("FOUR", Some("rdma/a.h")),
        ("a", Some("linux/b.h")),
        ("s", Some("linux/b.h")),
        ("nothing", None),
    ] {
        assert_eq!(names.header_of(name), header, "{name}");
    }
    assert!(names.structure("s").is_ok_and(|s| s.is_some()));
    assert!(names.structure("t").is_ok_and(|s| s.is_none()));
    // Odd structures are an error only for who asks about them.
    assert!(names.structure("u").is_err());
    assert_eq!(
        c::version("#define LINUX_VERSION_CODE 396363\n"),
        Some((6, 12))
    );
    assert_eq!(c::version("#define LINUX_VERSION_CODE x\n"), None);
    assert_eq!(c::version(""), None);
}

fn body(text: &str) -> Result<String, String> {
    fn show(all: &[c::Member]) -> String {
        let one = |m: &c::Member| {
            let body = m.body.as_ref().map(|b| format!("{{{}}}", show(b)));
            format!(
                "{}{}{}",
                m.name.as_deref().unwrap_or("-"),
                if m.flexible { "[]" } else { "" },
                body.unwrap_or_default()
            )
        };
        all.iter().map(one).collect::<Vec<_>>().join(" ")
    }
    let spaced: String = text
        .chars()
        .flat_map(|c| match c {
            '{' | '}' | '(' | ')' | '[' | ']' | ';' | ',' | '*' | ':' => vec![' ', c, ' '],
            c => vec![c],
        })
        .collect();
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    c::members(&tokens).map(|m| show(&m))
}

fn c_members() {
    for (text, is) in [
        ("}", ""),
        (";; }", ""),
        ("__u32 a; unsigned long long b[4]; }", "a b"),
        ("__u32 a, *b, c[2]; }", "a b c"),
        ("__u64 __attribute__((aligned(8))) a; }", "a"),
        ("__u64 a __attribute__((packed)); const char *b; }", "a b"),
        ("struct x y; union z { int q; } w; }", "y w{q}"),
        (
            "union { int a; struct { int b; }; }; int c; }",
            "-{a -{b}} c",
        ),
        ("union { int a; } b, c; }", "b{a} c{a}"),
        (
            "__u8 data[]; __u8 old[0]; __u8 one[1]; }",
            "data[] old[] one",
        ),
        (
            "struct { struct { } __empty_x; int x[]; }; }",
            "-{__empty_x{} x[]}",
        ),
        ("int a[2][0]; } int not_this;", "a"),
    ] {
        assert_eq!(body(text).as_deref(), Ok(is), "{text}");
    }
}

fn c_odd() {
    for bad in [
        "",
        "int a",
        "int a }",
        "int a : 3; }",
        "int (*f)(void); }",
        "struct { int a; b; }",
        "enum { A } x; }",
        "int 3; }",
        "[2]; }",
        "int a, ; }",
        "__attribute__((x; }",
    ] {
        assert!(body(bad).is_err(), "{bad}");
    }
}

const RUST: &str = "\
kernel_struct! {\npub struct s, size 16, align 4 {\n[0] pub a: u32,\n[4] pub b: i32,\n\
/// Since 7.3.\n[8] pub c: u32,\n[12] pub reserved: u32,\n}\n}\npub const N: u8 = 1;\n\
/// Since 6.12.\npub const M: u8 = 1;\n";
const C: &str = "struct s { int a; int b; int rest[]; };\nenum { N };\n";

/// The mistakes that are found before the compiler is asked.
fn planted_tables() {
    let wrong = |rust: &str, c: &str, version| -> Vec<String> {
        let found = compare::tables(&parsed(rust), &Names::read(c), version);
        found.map_or_else(|e| vec![e], |f| f.wrong)
    };
    #[track_caller]
    fn one(wrong: &[String], says: &str) {
        assert!(
            matches!(wrong, [only] if only.contains(says)),
            "{says}: {wrong:?}"
        );
    }
    assert!(wrong(RUST, C, (6, 1)).is_empty());
    one(&wrong(RUST, C, (6, 12)), "M: since 6.12, and 6.12 does not");
    // Between two kernels that were read, both may be.
    assert!(wrong(RUST, C, (6, 6)).is_empty());
    assert!(wrong(RUST, &format!("{C} enum {{ M }};"), (6, 6)).is_empty());
    let early = format!("{C} enum {{ M }};");
    one(
        &wrong(RUST, &early, (6, 1)),
        "M: since 6.12, and 6.1 has it",
    );
    let c = C.replace("int b;", "int b; int c;");
    one(&wrong(RUST, &c, (6, 1)), "s.c: since 7.3, and 6.1 has it");
    let c = C.replace("int b;", "");
    one(&wrong(RUST, &c, (6, 1)), "s.b: 6.1 has no such thing");
    let c = C.replace("int b;", "int b; union { int x; };");
    one(&wrong(RUST, &c, (6, 1)), "s.x: ");
    one(&wrong(RUST, "enum { N };", (6, 1)), "struct s: 6.1 has no");
    let c = C.replace("{ N }", "{ O }");
    one(&wrong(RUST, &c, (6, 1)), "N: 6.1 has no such thing");
    let rust = RUST.replace("Since 6.12.", "Since 6.9.");
    one(&wrong(&rust, C, (6, 1)), "M: since 6.9, which is none");
    let c = format!("{C}\n#define IB_WC_GRH 1\n");
    let rust = format!("{RUST}pub const IB_WC_GRH: u32 = 1;\n");
    one(&wrong(&rust, &c, (6, 1)), "said to be in no uapi header");
}

/// The mistakes that the compiler's answers tell.
fn planted_answers() {
    let found = compare::tables(&parsed(RUST), &Names::read(C), (6, 1)).unwrap_or_default();
    let asked: Vec<(&str, &str, i128)> = found
        .questions
        .iter()
        .map(|q| (q.what.as_str(), q.expression.as_str(), q.ours))
        .collect();
    let offset = "__builtin_offsetof(struct s, b)";
    for wanted in [
        ("size of struct s", "sizeof(struct s)", 16),
        ("alignment of struct s", "_Alignof(struct s)", 4),
        ("offset of s.b", offset, 4),
        ("width of s.b", "sizeof(((struct s *)0)->b)", 4),
        ("sign of s.b", "(__typeof__(((struct s *)0)->b))-1 < 0", 1),
        ("N", "N", 1),
    ] {
        assert!(asked.contains(&wanted), "{wanted:?} {asked:?}");
    }
    let question = |ours, bytes| Question {
        what: "width of s.b".to_owned(),
        expression: String::new(),
        ours,
        bytes,
        header: "rdma/a.h".to_owned(),
    };
    let said = question(4, None).mismatch(8);
    let wanted = "width of s.b: ours 4, theirs 8 (rdma/a.h)";
    assert_eq!(said.as_deref(), Some(wanted));
    assert_eq!(question(4, Some(4)).mismatch(4), None);
    // `1 << 31` is a negative int in C.
    let top = 1_u64 << 31;
    let spread = u64::MAX << 31;
    assert_eq!(question(top.into(), Some(4)).mismatch(spread), None);
    assert!(question(top.into(), None).mismatch(spread).is_some());
    assert!(question(top.into(), Some(8)).mismatch(spread).is_some());
    assert!(
        question(top.into(), Some(4))
            .mismatch(spread << 1)
            .is_some()
    );
    assert!(question(0, Some(4)).mismatch(1 << 32).is_some());
}
