mod ledger;
mod reader;
