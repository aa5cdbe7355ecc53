"use strict";

const fs = require("node:fs");
const yaml = require("js-yaml");

// parse turns a YAML list of {account, cents} into a list of entries.
function parse(text) {
  const entries = yaml.load(text);
  if (!Array.isArray(entries)) {
    throw new TypeError("a ledger is a list");
  }
  for (const e of entries) {
    if (typeof e.account !== "string" || !Number.isInteger(e.cents)) {
      throw new TypeError(`not an entry: ${JSON.stringify(e)}`);
    }
  }
  return entries;
}

// balances adds up the entries of each account.
function balances(entries) {
  const sums = new Map();
  for (const { account, cents } of entries) {
    sums.set(account, (sums.get(account) ?? 0) + cents);
  }
  return sums;
}

// append adds an entry to a ledger file, durably and whole or not at all.
function append(path, entry) {
  const entries = fs.existsSync(path) ? parse(fs.readFileSync(path, "utf8")) : [];
  entries.push(entry);
  const temp = `${path}.new`;
  const fd = fs.openSync(temp, "w");
  try {
    fs.writeSync(fd, yaml.dump(entries));
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
  fs.renameSync(temp, path);
}

module.exports = { parse, balances, append };
