"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { parse, balances, append } = require("../src/ledger");

describe("ledger", () => {
  it("parses entries", () => {
    assert.deepStrictEqual(parse("- {account: rent, cents: -50000}"), [{ account: "rent", cents: -50000 }]);
  });
  it("refuses what is no list", () => {
    assert.throws(() => parse("account: rent"), TypeError);
  });
  it("refuses entries without an amount", () => {
    assert.throws(() => parse("- {account: rent}"), /not an entry/);
  });
  it("adds up accounts", () => {
    const sums = balances([
      { account: "a", cents: 1 },
      { account: "b", cents: 2 },
      { account: "a", cents: 3 },
    ]);
    assert.deepStrictEqual([...sums], [["a", 4], ["b", 2]]);
  });

  describe("on a disk", () => {
    // Beside the tests, so that it is on the disk that they run from.
    const dir = path.join(__dirname, "..", "tmp");
    const file = path.join(dir, "ledger.yaml");

    beforeEach(() => fs.mkdirSync(dir, { recursive: true }));
    afterEach(() => fs.rmSync(dir, { recursive: true }));

    it("starts a file", () => {
      append(file, { account: "a", cents: 1 });
      assert.strictEqual(balances(parse(fs.readFileSync(file, "utf8"))).get("a"), 1);
    });
    it("keeps what was there", () => {
      for (let i = 1; i <= 50; i++) {
        append(file, { account: "a", cents: i });
      }
      assert.strictEqual(balances(parse(fs.readFileSync(file, "utf8"))).get("a"), 1275);
      assert.deepStrictEqual(fs.readdirSync(dir), ["ledger.yaml"]);
    });
  });
});
