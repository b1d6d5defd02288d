"""Japanese. Whoever says it in the polite past speaks of themselves, unless somebody else is named."""

from __future__ import annotations

from bot.agent.claims.language import Language, Saying, compiled

_DID = r"(?:(?:いた)?しました|して(?:おき|しまい)ました|済みです|が?完了しました|できました|しといた|したよ|しておいた)(?!ら|か(?!ら)|とい|と言|との|っけ|ね|場合|とき|そう|よう|際|方|件|の(?!で))"
_ED = r"(?:ました)(?!ら|か(?!ら)|とい|と言|との|っけ|ね|場合|とき|そう|よう|際|方|件|の(?!で))"
_WAS = (
    r"(?:が|は)?(?:されました|済みです|完了しました|成功しました|完了です)(?!ら|か(?!ら)|とい|と言|との|ね)"
)
_FILE = r"(?:<name>|ファイル|フォルダ|ディレクトリ|データベース|ノート|メモ|スプレッドシート|リポジトリ|設定)"
_MAIL = r"(?:メール|Eメール|SMS|Slack|Telegram|LINE|Teams|招待|DM|チャンネル)"
_EVENT = r"(?:リマインダー|アラーム|タイマー|予定|会議|ミーティング|スケジュール|カレンダー|ジョブ|通知)"
_GAP = r"[^。！？；\n]{0,40}?"
_TO = r"(?<!(?:あなた|ここ|上記|以下|こちら)(?:に|へ)?[^。！？；\n]{0,20})"

_SAYINGS = (
    Saying("mailed", compiled(rf"{_MAIL}{_GAP}(?:(?:送信|送付|転送|投稿|返信|配信){_DID}|(?:お)?送り{_ED}|送っておき{_ED}|出し{_ED}|出しておき{_ED})")),
    Saying("mailed", compiled(rf"(?:メール|DM|通知|連絡){_DID}(?<!ご(?:連絡|通知)(?:いた)?しました)")),
    Saying("mailed", compiled(rf"(?:さん|様|チーム|部長|課長|社長|全員|各位|先生|部|氏|君)(?:に|へ|宛に)(?:は)?{_GAP}(?:(?:送信|送付|転送|返信|連絡|通知|共有){_DID}|(?:お)?送り{_ED}|送っておき{_ED}|伝え{_ED}|知らせ{_ED})")),
    Saying("sent", compiled(rf"{_TO}(?:(?:送信|送付|転送|投稿|公開|提出){_DID}|(?<!お)送り{_ED}|送っておき{_ED})")),
    Saying("sent", compiled(rf"(?:送信|転送|投稿|提出){_WAS}"), own=False),
    Saying("saved", compiled(rf"(?:保存|書き込み|バックアップ|上書き){_DID}|書き込み{_ED}|書き込んでおき{_ED}")),
    Saying("saved", compiled(rf"{_FILE}{_GAP}(?:(?:作成|更新|追記|追加|変更|編集|修正|記録|移動|コピー|リネーム){_DID}|書き{_ED}|直し{_ED})")),
    Saying("saved", compiled(rf"保存{_WAS}"), own=False),
    Saying("saved", compiled(rf"{_FILE}(?:が|は)(?:正常に|新たに|すべて)*(?:作成|更新|変更|編集)され{_ED}"), own=False),
    Saying("deleted", compiled(rf"(?<!(?:段落|文章|一文|語句|文言|重複)を?[^。！？；\n]{{0,8}})(?:(?:削除|消去){_DID}|消し{_ED}|消しておき{_ED})")),
    Saying("deleted", compiled(rf"(?:削除|消去){_WAS}"), own=False),
    Saying("ran", compiled(rf"(?:実行|再実行){_DID}|(?:テスト|スクリプト|コマンド|ビルド|プログラム|コード)を(?:走らせ|流し|回し|動かし){_ED}")),
    Saying("ran", compiled(rf"実行{_WAS}"), own=False),
    Saying("scheduled", compiled(rf"{_EVENT}{_GAP}(?:設定|登録|追加|作成|予約|セット|キャンセル|変更|入力){_DID}|{_EVENT}{_GAP}(?:入れ|組み|入れておき){_ED}|スケジュール{_DID}")),
    Saying("scheduled", compiled(rf"{_EVENT}(?:が|は){_GAP}(?:設定|登録|追加|作成|予約)され{_ED}"), own=False),
    Saying("acted", compiled(rf"(?:インストール|デプロイ|再起動|予約|注文|購入|支払い|振込|決済|コミット|プッシュ|マージ|アップロード|ダウンロード|キャンセル){_DID}|支払い{_ED}|振り込み{_ED}")),
    Saying("acted", compiled(rf"(?:インストール|デプロイ|予約|注文|決済|アップロード){_WAS}"), own=False),
)  # fmt: skip

JAPANESE = Language(
    name="ja",
    sayings=_SAYINGS,
    before=compiled(
        r"昨日|一昨日|先週|先月|去年|昨年|以前|前回|先日|当時|(?:もし|仮に|たとえば|例えば)|(?:たら|れば|なら|場合|後で|次第|前に)(?:、|は)|によると|によれば|(?:さん|様|君|氏|社|部|チーム|部長|課長|社長|担当者|ユーザー|相手|先方|あなた|彼|彼女|彼ら|同僚|上司|会社|公式|開発者)(?:が|は)(?!、?私)"
    ),
    around=compiled(r"ません|ない|昨日|一昨日|先週|先月|去年|昨年|以前|前回|さっき|先ほど|先日|当時|今朝|(?:19|20)\d\d年|下書き"),
    earlier=compiled(r"すでに|既に|もう|前に"),
    admits=compiled(r"失敗|エラー|できません|できなかった|残念|終了コード|タイムアウト|拒否|うまくいきません"),
    draft=compiled(
        r"(?:下書き|メール|メッセージ|文面|文章|訳|翻訳|例文?|返信|件名|テンプレート|文案|内容|以下|ログ|出力|要約|まとめ|案)[^。！？\n]{0,20}(?:[:：]|です。?|になります。?|ます。?)\s*$"
    ),
    composing=compiled(r"下書き|翻訳|訳し|和訳|英訳|添削|校正|書き直|言い換え|例文|文面|(?:メール|手紙|文章|返信|メッセージ|お詫び|物語|詩|報告)を?[^。\n]{0,10}書いて|作文|要約|まとめて|なんて言"),
    requests=compiled(r"ください|下さい|お願い|もらえ|くれ|いただけ|して(?:ね|よ)?$|頼む|といて"),
    reviewing=compiled(r"(?:ました|た|済み|てる|ている)(?:か|の)?[？?]|ましたか"),
    orders={
        "sent": compiled(r"送|投稿|転送|提出|公開"),
        "mailed": compiled(r"送|メールして|転送|連絡|知らせ|通知|伝え"),
        "saved": compiled(r"保存|書き込|記録|メモして|更新|作成|作って|追記|覚え|直して|変更"),
        "deleted": compiled(r"削除|消し|消去"),
        "ran": compiled(r"実行|走らせ|動かし|回し|テスト"),
        "scheduled": compiled(r"リマインド|リマインダー|予定|設定|登録|入れて|知らせ|スケジュール|キャンセル"),
        "acted": compiled(r"インストール|デプロイ|再起動|予約|注文|購入|買|支払|払|アップロード|キャンセル"),
    },
    done={
        "sent": compiled(r"(?:送信|投稿|転送|提出)しました|送りました|送った"), "mailed": compiled(r"(?:送信|転送|連絡|通知)しました|送りました|送った"),
        "saved": compiled(r"(?:保存|更新|作成|変更)し(?:ました|た)"), "deleted": compiled(r"(?:削除|消去)し(?:ました|た)|消し(?:ました|た)|消えた"),
        "ran": compiled(r"実行し(?:ました|た)"), "scheduled": compiled(r"(?:設定|登録|予約|キャンセル)し(?:ました|た)"),
        "acted": compiled(r"(?:インストール|予約|注文|購入|アップロード|キャンセル)し(?:ました|た)|買(?:いまし)?た|払(?:いまし)?った"),
    },
    note="（ご確認ください：「{claim}」——このメッセージのために私が行ったことの中に、それに当たるものはありません。）",
)  # fmt: skip
