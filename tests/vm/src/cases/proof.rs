//! `docs/events-proof.md` says which case shows which type of event on which kernel: its table has
//! all types, and every case that it names is there.

use std::collections::BTreeSet;

use uverbs::AsyncEventKind;

const PAGE: &str = include_str!("../../../../docs/events-proof.md");

/// The names in code marks that are names of cases.
fn cases_named(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains("::") && !name.starts_with("cases::"))
}

#[test]
fn the_table_has_every_type_and_a_cell_for_each_kernel() {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").collect())
        .filter(|row: &Vec<&str>| row.len() == 4)
        .collect();
    let (head, rows) = rows.split_first().expect("a table");
    assert_eq!(head, &["type", "6.1", "6.12", "newest (7.3)"]);
    let types: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let all: Vec<&str> = AsyncEventKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(types, all);
    for row in rows {
        for cell in &row[1..] {
            let how = cell.split(':').next().unwrap_or_default();
            assert!(["natural", "injected"].contains(&how), "{}: {cell}", row[0]);
            assert_eq!(cases_named(cell).count(), 1, "{}: {cell}", row[0]);
        }
    }
}

#[test]
fn every_case_that_the_page_names_is_there() {
    let all: BTreeSet<&str> = super::all().iter().map(|case| case.name).collect();
    let named: BTreeSet<&str> = cases_named(PAGE).collect();
    assert!(named.len() > 25, "only {} names were found", named.len());
    let missing: Vec<&&str> = named.difference(&all).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn an_injected_cell_names_a_case_that_loads_the_modules() {
    for line in PAGE.lines() {
        for cell in line
            .split(" | ")
            .filter(|cell| cell.starts_with("injected:"))
        {
            for name in cases_named(cell) {
                let case = super::all().into_iter().find(|case| case.name == name);
                assert!(case.is_some_and(|case| case.modules), "{name}");
            }
        }
    }
}
